"""Vectorised conditions and features over the knob values of many configurations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_core.space.knobs import Values

Configs = NDArray[np.int32]
"""Configurations as knob indices, shape (n, knobs)."""


@attrs.frozen(kw_only=True)
class Constraint:
    """A condition every legal configuration meets.

    Attributes:
        reason: what is wrong with a configuration that does not, as a short sentence.
        holds: vectorised over n configurations: knob values to a bool array of shape (n,). It
            sees only configurations that meet the constraints before it.
    """

    reason: str
    holds: Callable[[Values], NDArray[np.bool_]]


@attrs.frozen(kw_only=True)
class FeatureBlock:
    """Analytical features a space supplies beside those of its knobs.

    Attributes:
        names: one per column.
        compute: knob values of n configurations to an array of shape (n, len(names)).
    """

    names: tuple[str, ...]
    compute: Callable[[Values], NDArray[np.floating[Any]]]


class ChosenValues(Mapping[str, NDArray[Any]]):
    """Knob values looked up once, and only for the knobs that are read."""

    def __init__(self, knobs: Mapping[str, tuple[int, NDArray[Any]]], configs: Configs) -> None:
        self._knobs = knobs
        self._configs = configs
        self._chosen: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        chosen = self._chosen.get(name)
        if chosen is None:
            column, table = self._knobs[name]
            chosen = self._chosen[name] = table.take(self._configs[:, column], axis=0)
        return chosen

    def __iter__(self) -> Iterator[str]:
        return iter(self._knobs)

    def __len__(self) -> int:
        return len(self._knobs)

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
        groups: which columns tell of one loop or buffer: its name and theirs, each in one group at
            most. What learns of a program part by part reads them; no fingerprint depends on them.
            One group of all columns where nothing is said.

    Raises:
        ValueError: a group names a column that is not there, or that another one has.
    """

    names: tuple[str, ...]
    compute: Callable[[Values], NDArray[np.floating[Any]]]
    groups: tuple[tuple[str, tuple[str, ...]], ...] = attrs.field()

    @groups.default
    def _one_group(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        return (("structure", self.names),)

    @groups.validator
    def _check(self, _attribute: object, groups: tuple[tuple[str, tuple[str, ...]], ...]) -> None:
        grouped = [column for _, columns in groups for column in columns]
        unknown = sorted(set(grouped) - set(self.names))
        if unknown:
            raise ValueError(f"groups of features name {unknown}, which are no columns")
        if len(set(grouped)) != len(grouped):
            raise ValueError("groups of features name a column twice")


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

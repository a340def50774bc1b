"""Configurations as one flat vector each, as trees and the original paper's network see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import attrs
import numpy as np

from chameleon_one_shot.predictor.examples import Example
from chameleon_one_shot.tokens import TaskTokens
from chameleon_one_shot.tokens.configuration import Numbers


@attrs.frozen(kw_only=True)
class FlatFeatures:
    """All numbers of all tokens side by side.

    Attributes:
        names: of the columns, those of the training data.
    """

    names: tuple[str, ...]

    @classmethod
    def of(cls, examples: Sequence[Example]) -> Self:
        """The columns of training data."""
        return cls(names=tuple(sorted({name for one in examples for name in one.tokens.columns})))

    def rows(self, example: Example) -> Numbers:
        """The numbers of an example's candidates, NaN for what they do not have.

        Returns:
            Shape (n, len(names)).
        """
        place = {name: at for at, name in enumerate(self.names)}
        out = np.full((len(example), len(self.names)), np.nan, np.float32)
        for name, values in _columns(example.tokens, example):
            if name in place:
                out[:, place[name]] = values
        return out

    def table(self, examples: Sequence[Example]) -> Numbers:
        """The rows of several examples, one below the other."""
        return np.concatenate([self.rows(one) for one in examples])


def _columns(tokens: TaskTokens, example: Example) -> list[tuple[str, Numbers]]:
    found: list[tuple[str, Numbers]] = []
    for fixed in tokens.fixed:
        found += [(name, fixed.values[at]) for at, name in enumerate(fixed.columns)]
    choices = tokens.choices(example.configs)
    for knob, chosen in zip(tokens.knobs, choices.T, strict=True):
        missing = np.full((1, len(knob.columns)), np.nan, np.float32)
        rows = np.concatenate([knob.table, missing])[chosen]
        found += [(name, rows[:, at]) for at, name in enumerate(knob.columns)]
    structure = tokens.structure(example.configs)
    for group in tokens.groups:
        found += [
            (name, structure[:, place])
            for name, place in zip(group.columns, group.places, strict=True)
        ]
    return found


__all__ = ["FlatFeatures"]

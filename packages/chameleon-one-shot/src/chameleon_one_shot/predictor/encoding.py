"""Tokens as padded arrays of standardised numbers and of ids, which a network takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, TypeVar

import attrs
import numpy as np
from chameleon_core.space import Configs
from numpy.typing import NDArray

from chameleon_one_shot.tokens import TaskTokens, Vocabulary
from chameleon_one_shot.tokens.configuration import Numbers
from chameleon_one_shot.tokens.vocabulary import Ids

Scalar = TypeVar("Scalar", bound=np.generic)

FIXED, KNOB, GROUP = range(3)
"""Kinds of tokens."""


@attrs.frozen(kw_only=True, eq=False)
class Layout:
    """Which numbers each of several tokens has.

    Attributes:
        columns: ids of their numbers, 0 for padding, shape (tokens, numbers).
        names: ids of the tokens, shape (tokens,).
        kinds: ``FIXED``, ``KNOB`` or ``GROUP``, shape (tokens,).
    """

    columns: Ids
    names: Ids
    kinds: Ids


@attrs.frozen(kw_only=True, eq=False)
class EncodedTask:
    """The tokens of a task in the terms of a vocabulary.

    Attributes:
        tokens: the task's.
        fixed: layout of the tokens that all configurations share.
        fixed_values: their numbers, shape (fixed tokens, numbers).
        rows: layout of the tokens of a configuration: knobs, then loops and buffers.
        tables: of each knob the numbers of its choices, shape (choices, numbers of ``rows``).
        vocabulary: what ids stand for.
    """

    tokens: TaskTokens
    fixed: Layout
    fixed_values: Numbers
    rows: Layout
    tables: tuple[Numbers, ...]
    vocabulary: Vocabulary

    @classmethod
    def of(cls, tokens: TaskTokens, vocabulary: Vocabulary) -> Self:
        """Encode a task's tokens."""
        parts = tokens.parts[len(tokens.fixed) :]
        kinds = [KNOB] * len(tokens.knobs) + [GROUP] * len(tokens.groups)
        rows = _layout([(part.name, part.columns) for part in parts], kinds, vocabulary)
        width = rows.columns.shape[1]
        fixed = _layout(
            [(part.name, part.columns) for part in tokens.fixed],
            [FIXED] * len(tokens.fixed),
            vocabulary,
        )
        values = [vocabulary.standardised(part.columns, part.values) for part in tokens.fixed]
        return cls(
            tokens=tokens,
            fixed=fixed,
            fixed_values=np.stack([_padded(value, fixed.columns.shape[1]) for value in values]),
            rows=rows,
            tables=tuple(
                _padded(vocabulary.standardised(knob.columns, knob.table), width)
                for knob in tokens.knobs
            ),
            vocabulary=vocabulary,
        )

    def values(self, configs: Configs) -> tuple[Numbers, NDArray[np.bool_]]:
        """The numbers of n configurations' tokens, and which of these do not apply.

        Returns:
            Shapes (n, tokens, numbers) and (n, tokens).
        """
        count, width = self.rows.columns.shape
        out = np.zeros((len(configs), count, width), np.float32)
        absent = np.zeros((len(configs), count), np.bool_)
        choices = self.tokens.choices(configs)
        for column, table in enumerate(self.tables):
            chosen = choices[:, column]
            absent[:, column] = chosen == len(table)
            rows = ~absent[:, column]
            out[rows, column] = table[chosen[rows]]
        out[:, len(self.tables) :] = self.structure(configs)
        return out, absent

    def structure(self, configs: Configs) -> Numbers:
        """Numbers of loops and buffers, shape (n, groups, numbers of ``rows``)."""
        groups = self.tokens.groups
        out = np.zeros((len(configs), len(groups), self.rows.columns.shape[1]), np.float32)
        structure = self.tokens.structure(configs)
        for at, group in enumerate(groups):
            out[:, at, : len(group.places)] = self.vocabulary.standardised(
                group.columns, structure[:, group.places]
            )
        return out


def _layout(
    parts: Sequence[tuple[str, Sequence[str]]], kinds: Sequence[int], vocabulary: Vocabulary
) -> Layout:
    width = max((len(columns) for _, columns in parts), default=0)
    ids = [_padded(vocabulary.column_ids(columns), width) for _, columns in parts]
    return Layout(
        columns=np.stack(ids) if ids else np.zeros((0, width), np.int64),
        names=vocabulary.token_ids(name for name, _ in parts),
        kinds=np.array(kinds, np.int64),
    )


def _padded(values: NDArray[Scalar], width: int) -> NDArray[Scalar]:
    """An array whose last axis has zeros up to a width."""
    missing = [(0, 0)] * (values.ndim - 1) + [(0, width - values.shape[-1])]
    return np.pad(values, missing)

"""Encodes tokens as padded arrays of numbers and ids, which are a network's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, TypeVar

import attrs
import numpy as np
from chameleon_core.plugin_api import Configs
from numpy.typing import NDArray

from chameleon_one_shot._tokens.configuration import Numbers, TaskTokens
from chameleon_one_shot._tokens.vocabulary import Ids, Vocabulary

Scalar = TypeVar("Scalar", bound=np.generic)

FIXED, KNOB, GROUP = range(3)
"""The kinds of tokens."""


@attrs.frozen(kw_only=True, eq=False)
class Layout:
    """The ids by which a network looks up the names in several tokens.

    Attributes:
        columns: the ids of the names of each token's numbers, 0 for padding, shape (tokens,
            numbers).
        names: the ids of the tokens' names, shape (tokens,).
        kinds: ``FIXED``, ``KNOB`` or ``GROUP`` for each token, shape (tokens,).
    """

    columns: Ids
    names: Ids
    kinds: Ids


@attrs.frozen(kw_only=True, eq=False)
class EncodedTask:
    """The tokens of a task, encoded with a vocabulary as the inputs of a network.

    Attributes:
        fixed: the ids of the tokens that all configurations share.
        fixed_values: the numbers that describe these tokens, shape (fixed tokens, numbers).
        rows: the ids of the other tokens: one for each knob, then one for each loop or buffer.
        tables: the numbers of each knob's values, padded with 0, shape (values, numbers).
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
        values = [vocabulary.standardise(part.columns, part.values) for part in tokens.fixed]
        return cls(
            tokens=tokens,
            fixed=fixed,
            fixed_values=np.stack([_pad(value, fixed.columns.shape[1]) for value in values]),
            rows=rows,
            tables=tuple(
                _pad(vocabulary.standardise(knob.columns, knob.table), width)
                for knob in tokens.knobs
            ),
            vocabulary=vocabulary,
        )

    def values(self, configs: Configs) -> tuple[Numbers, NDArray[np.bool_]]:
        """The numbers (n, tokens, numbers) of n configurations, and which tokens are absent."""
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
        """The padded numbers of loops and buffers, shape (n, loops and buffers, numbers)."""
        groups = self.tokens.groups
        out = np.zeros((len(configs), len(groups), self.rows.columns.shape[1]), np.float32)
        structure = self.tokens.structure(configs)
        for at, group in enumerate(groups):
            out[:, at, : len(group.columns_of_structure)] = self.vocabulary.standardise(
                group.columns, structure[:, group.columns_of_structure]
            )
        return out


def _layout(
    parts: Sequence[tuple[str, Sequence[str]]], kinds: Sequence[int], vocabulary: Vocabulary
) -> Layout:
    width = max((len(columns) for _, columns in parts), default=0)
    ids = [_pad(vocabulary.column_ids(columns), width) for _, columns in parts]
    return Layout(
        columns=np.stack(ids) if ids else np.zeros((0, width), np.int64),
        names=vocabulary.token_ids(name for name, _ in parts),
        kinds=np.array(kinds, np.int64),
    )


def _pad(values: NDArray[Scalar], width: int) -> NDArray[Scalar]:
    """An array whose last axis is padded with zeros up to a width."""
    missing = [(0, 0)] * (values.ndim - 1) + [(0, width - values.shape[-1])]
    return np.pad(values, missing)

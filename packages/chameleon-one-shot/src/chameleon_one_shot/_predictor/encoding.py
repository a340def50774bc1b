"""Encodes tokens as padded arrays of numbers and ids, which are a network's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self, TypeVar

import attrs
import numpy as np
from chameleon_core.plugin_api import Configs
from numpy.typing import NDArray

from chameleon_one_shot._tokens import TaskTokens, Vocabulary
from chameleon_one_shot._tokens.configuration import Numbers
from chameleon_one_shot._tokens.vocabulary import Ids

Scalar = TypeVar("Scalar", bound=np.generic)

FIXED, KNOB, GROUP = range(3)
"""The kinds of tokens."""


@attrs.frozen(kw_only=True, eq=False)
class Layout:
    """The ids by which a network looks up the names in several tokens (its inputs).

    Attributes:
        columns: The ids of the names of each token's numbers, 0 for padding, shape (tokens,
            numbers).
        names: The ids of the tokens' names, shape (tokens,).
        kinds: ``FIXED``, ``KNOB`` or ``GROUP`` for each token, shape (tokens,).
    """

    columns: Ids
    names: Ids
    kinds: Ids


@attrs.frozen(kw_only=True, eq=False)
class EncodedTask:
    """The tokens of a task, encoded with a vocabulary as the inputs of a network.

    Attributes:
        fixed: The ids of the tokens that all configurations share.
        fixed_values: The numbers that describe these tokens, shape (fixed tokens, numbers).
        rows: The ids of the tokens that differ between configurations: first one token for each
            knob, then one for each loop or buffer.
        tables: For each knob, the numbers that describe each of its values, shape (values,
            numbers). The last axis has room for the longest token in ``rows``. Shorter tokens are
            padded with 0.
        vocabulary: The vocabulary that assigns an id to each name.
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
        """Encode n configurations as numbers, for the tokens of knobs, loops and buffers.

        Args:
            configs: Configurations, shape (n, knobs).

        Returns:
            The standardised numbers of each token, shape (n, tokens, numbers). The second array
            says whether a token does not apply to a configuration, shape (n, tokens).
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
        """The numbers that describe the loops and buffers of n configurations.

        Args:
            configs: Configurations, shape (n, knobs).

        Returns:
            Array of shape (n, loops and buffers, numbers), with loops and buffers in the order of
            ``tokens.groups``. The last axis has room for the longest token of a knob, loop or
            buffer. Shorter tokens are padded with 0.
        """
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
    """An array whose last axis is padded with zeros up to a width."""
    missing = [(0, 0)] * (values.ndim - 1) + [(0, width - values.shape[-1])]
    return np.pad(values, missing)

"""Arrays that describe configurations to a neural network. This module imports no torch."""

from __future__ import annotations

import hashlib
from typing import Protocol

import numpy as np
from chameleon_core.plugin_api import Configs, DesignSpace, Knob
from numpy.typing import NDArray

States = NDArray[np.float32]

_CHOICE_FEATURES = 4
"""The number of token columns for a knob's features; a tile has one feature per part."""

_NAME_WIDTH = 8
"""The number of token columns that encode a knob's name."""

SUMMARY_WIDTH = 4
"""The number of columns of ``EpisodeBatch.summary``, the progress of an episode."""


class StateEncoder(Protocol):
    """Encodes the current configurations of all episodes as states for a neural network."""

    shape: tuple[int, ...]
    """The shape of one state."""

    def encode(self, configs: Configs, moves: NDArray[np.int8], summary: States) -> States:
        """The states of n episodes, from which the network chooses actions, shape (n, *shape).

        Args:
            configs: the current configuration of each episode, shape (n, knobs).
            moves: the direction of each knob's last step: -1, 0 or 1, shape (n, knobs).
            summary: ``EpisodeBatch.summary``, shape (n, SUMMARY_WIDTH).
        """


class VectorStates:
    """Encodes states as in Ahn et al. (2020): each knob's index over its number of choices."""

    def __init__(self, space: DesignSpace) -> None:
        self.shape: tuple[int, ...] = (len(space.knobs),)
        self._scale = (1.0 / space.cardinalities).astype(np.float32)

    def encode(
        self,
        configs: Configs,
        moves: NDArray[np.int8],  # noqa: ARG002 - the paper's state is the configuration alone
        summary: States,  # noqa: ARG002
    ) -> States:
        return configs.astype(np.float32) * self._scale


class TokenStates:
    """Encodes states with one token per knob, whose width is the same for every design space.

    The token contains a hash of the knob's name. With shared weights, a policy can therefore use in
    the next task what it learnt about a knob such as ``tile_h``.
    """

    def __init__(self, space: DesignSpace) -> None:
        self._space = space
        tables = [_choices(knob) for knob in space.knobs]
        self._table = np.concatenate(tables)
        self._offsets = np.cumsum([0, *(len(table) for table in tables[:-1])])
        self._static = self._table.shape[1]
        width = self._static + 1 + 2 + SUMMARY_WIDTH
        self.shape: tuple[int, ...] = (len(space.knobs), width)

    def encode(self, configs: Configs, moves: NDArray[np.int8], summary: States) -> States:
        out = np.empty((len(configs), *self.shape), np.float32)
        static = self._static
        out[:, :, :static] = self._table.take(configs + self._offsets, axis=0)
        out[:, :, static] = self._space.active(configs)
        out[:, :, static + 1] = moves
        out[:, :, static + 2] = moves != 0
        out[:, :, static + 3 :] = summary[:, None, :]
        return out


def _choices(knob: Knob) -> States:
    """The token columns of every choice of a knob, shape (cardinality, columns)."""
    cardinality = knob.cardinality
    index = np.arange(cardinality, dtype=np.float32)
    position = 2.0 * index / max(cardinality - 1, 1) - 1.0
    values = np.asarray(knob.values)
    tiled, symbolic = values.ndim > 1, values.dtype.kind not in "biuf"
    means = np.zeros((cardinality, _CHOICE_FEATURES), np.float32)
    if not symbolic:
        # The innermost part is always in the last column, for any number of parts.
        own = knob.feature_table[:, -_CHOICE_FEATURES:]
        means[:, _CHOICE_FEATURES - own.shape[1] :] = own / 4.0
    constant = [np.log2(cardinality) / 4.0, float(tiled), float(symbolic), *_code(knob.name)]
    columns = [position, position**2, index == 0, index == cardinality - 1]
    return np.column_stack(
        [*columns, means, np.tile(np.asarray(constant, np.float32), (cardinality, 1))]
    ).astype(np.float32)


def _code(name: str) -> list[float]:
    """Numbers in [-1, 1] from a hash of a name, the same in every process."""
    digest = hashlib.sha256(name.encode()).digest()[:_NAME_WIDTH]
    return [byte / 127.5 - 1.0 for byte in digest]

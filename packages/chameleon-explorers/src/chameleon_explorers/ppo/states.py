"""Configurations as what a network sees. Only numpy: networks turn the arrays into tensors."""

from __future__ import annotations

import hashlib
from typing import Protocol

import numpy as np
from chameleon_core.space import Configs, DesignSpace, Knob
from numpy.typing import NDArray

States = NDArray[np.float32]

_CHOICE_FEATURES = 4
"""Columns of a knob's own features that a token shows; a tile has one per part."""

_NAME_WIDTH = 8
"""Numbers that tell a knob from the others by its name."""

SUMMARY_WIDTH = 4
"""Numbers that describe how an episode stands, see ``EpisodeBatch.summary``."""


class StateEncoder(Protocol):
    """Turns the configurations of all episodes into states."""

    shape: tuple[int, ...]
    """Shape of one state."""

    def encode(self, configs: Configs, moves: NDArray[np.int8], summary: States) -> States:
        """States of n episodes, shape (n, *shape).

        Args:
            configs: where the episodes are, shape (n, knobs).
            moves: the step each knob took last: -1, 0 or 1; shape (n, knobs).
            summary: how the episodes stand, shape (n, SUMMARY_WIDTH).
        """


class VectorStates:
    """The paper's state: the configuration, one number per knob, index over cardinality."""

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
    """One token per knob, of a width that no space changes.

    A token says where the knob stands (its normalised index, whether at a bound, whether it
    applies). It says what the knob is (kind, cardinality, a code of its name) and what its choice
    means (its own features). It has the knob's last step and the episode's state. So a policy with
    weights shared by all tokens can walk any space, and meets ``tile_h`` again in the next task.
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
    """The columns of a token for every choice of a knob, shape (cardinality, columns)."""
    cardinality = knob.cardinality
    index = np.arange(cardinality, dtype=np.float32)
    position = 2.0 * index / max(cardinality - 1, 1) - 1.0
    values = np.asarray(knob.values)
    tiled, symbolic = values.ndim > 1, values.dtype.kind not in "biuf"
    means = np.zeros((cardinality, _CHOICE_FEATURES), np.float32)
    if not symbolic:
        # Innermost parts last, and always in the same column, however many there are.
        own = knob.feature_table[:, -_CHOICE_FEATURES:]
        means[:, _CHOICE_FEATURES - own.shape[1] :] = own / 4.0
    constant = [np.log2(cardinality) / 4.0, float(tiled), float(symbolic), *_code(knob.name)]
    columns = [position, position**2, index == 0, index == cardinality - 1]
    return np.column_stack(
        [*columns, means, np.tile(np.asarray(constant, np.float32), (cardinality, 1))]
    ).astype(np.float32)


def _code(name: str) -> list[float]:
    """A few fixed numbers in [-1, 1] that depend on the name alone, in every process."""
    digest = hashlib.sha256(name.encode()).digest()[:_NAME_WIDTH]
    return [byte / 127.5 - 1.0 for byte in digest]

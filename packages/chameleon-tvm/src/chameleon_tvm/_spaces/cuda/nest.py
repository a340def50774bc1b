"""The loop nest that all CUDA templates share, described for arrays of configurations.

Output axes are split into blocks, virtual threads, threads and an inner part, reduction axes into
steps and an inner part. In each step, the threads of a block copy all data that they need into
shared memory (cooperative fetching).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import Values
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

ALIGNMENT = 64
"""TVM's CUDA code places every array at a multiple of this many bytes."""

BLOCK, VIRTUAL, THREAD, INNER = range(4)
"""Parts of an output axis, outermost first, as in the paper's template (CHAMELEON, Table 1)."""


@attrs.frozen(kw_only=True)
class Axis:
    """A loop of an operator, divided by a knob ``tile_<name>`` unless it is ``untiled``."""

    name: str
    extent: int
    untiled: bool = False

    @property
    def knob(self) -> str:
        """The name of the knob that tiles this axis."""
        return f"tile_{self.name}"


@attrs.frozen(kw_only=True)
class Operand:
    """An input that blocks of threads copy to shared memory.

    Attributes:
        dimensions: For each dimension of the array, how far its index moves per iteration of an
            axis, by the axis's name.
        vector_axis: The axis along which a thread can load neighbours in memory as a vector,
            whatever the tile; None if no axis allows this.
        transposed: Whether the last two dimensions change places in shared memory, so that threads
            read from different banks.
    """

    name: str
    dimensions: tuple[dict[str, int], ...]
    vector_axis: str | None = None
    transposed: bool = False

    @property
    def knob(self) -> str:
        """The name of the knob that sets how many elements a thread loads at once."""
        return f"vector_{self.name}"

    @property
    def axes(self) -> frozenset[str]:
        """The names of the axes on which the operand's elements depend."""
        return frozenset(axis for dimension in self.dimensions for axis in dimension)

    def elements(self, tile: dict[str, Any]) -> Any:
        """Number of elements in the smallest box that contains all elements that a tile reads."""
        boxes = [self._box(dimension, tile) for dimension in self.dimensions]
        return prod(boxes, start=1)

    def row_length(self, tile: dict[str, Any]) -> Any:
        """Number of contiguous elements in a row of this box."""
        return self._box(self.dimensions[-1], tile)

    @staticmethod
    def _box(dimension: dict[str, int], tile: dict[str, Any]) -> Any:
        return 1 + sum(step * (tile[axis] - 1) for axis, step in dimension.items())


@attrs.frozen(kw_only=True)
class Nest:
    """The loop nest of an operator, as the GPU templates schedule it.

    Attributes:
        outputs: The output axes that are tiled, the last of which is contiguous in the output.
        reductions: The reduction axes.
        copies: Number of independent nests, such as one for each image or group.
        operands: The inputs that are copied to shared memory.
        flop: Floating-point operations of all copies.
    """

    outputs: tuple[Axis, ...]
    reductions: tuple[Axis, ...]
    copies: int
    operands: tuple[Operand, ...]
    flop: float

    @property
    def points(self) -> int:
        """Number of outputs of one copy of the nest."""
        return prod(axis.extent for axis in self.outputs)

    def tile_extents(self, values: Values, *parts: int) -> dict[str, Numbers]:
        """Products of some factors (``BLOCK``, ...) of each output axis, shape (n,)."""
        return {
            axis.name: np.prod(values[axis.knob][:, list(parts)], axis=1) for axis in self.outputs
        }

    def step_extents(self, values: Values) -> dict[str, Any]:
        """Iterations of each reduction axis in one step, by axis."""
        return {
            axis.name: axis.extent if axis.untiled else values[axis.knob][:, 1]
            for axis in self.reductions
        }

    def block_extents(self, values: Values) -> dict[str, Any]:
        """Iterations of each axis that a block of threads runs in one step, shape (n,)."""
        return self.tile_extents(values, VIRTUAL, THREAD, INNER) | self.step_extents(values)

    def threads(self, values: Values) -> Numbers:
        """Number of threads of a block; shape (n,)."""
        return _product(self.tile_extents(values, THREAD))

    def virtual_threads(self, values: Values) -> Numbers:
        """Number of virtual threads that each thread runs."""
        return _product(self.tile_extents(values, VIRTUAL))

    def sums(self, values: Values) -> Numbers:
        """Number of sums that a thread keeps; shape (n,)."""
        return _product(self.tile_extents(values, VIRTUAL, INNER))

    def shared_elements(self, values: Values) -> dict[str, Numbers]:
        """Elements of each operand that a step copies to shared memory, shape (n,)."""
        block = self.block_extents(values)
        return {operand.name: operand.elements(block) for operand in self.operands}

    def shared_bytes(self, values: Values, element_bytes: int) -> Numbers:
        """Bytes of shared memory of a block; shape (n,)."""
        arrays = [elements * element_bytes for elements in self.shared_elements(values).values()]
        return aligned_bytes(arrays)

    def blocks(self, values: Values) -> Numbers:
        """Number of blocks of threads in a launch, for all copies of the nest; shape (n,)."""
        return self.copies * _product(self.tile_extents(values, BLOCK))

    def steps(self, values: Values) -> Numbers:
        """Number of times that a block copies its operands to shared memory, shape (n,)."""
        chosen = [values[axis.knob][:, 0] for axis in self.reductions if not axis.untiled]
        return np.asarray(np.prod(chosen, axis=0) if chosen else np.ones(1, np.int64))

    def products_per_step(self, values: Values) -> Numbers:
        """Number of products that a step adds to each sum, shape (n,)."""
        return np.asarray(prod(self.step_extents(values).values(), start=1))

    def operands_per_thread(self, values: Values) -> Numbers:
        """Elements that a thread reads from shared memory per product of each sum, shape (n,)."""
        own = self.tile_extents(values, VIRTUAL, INNER)
        return np.asarray(
            sum(
                prod((own[axis] for axis in operand.axes if axis in own), start=1)
                for operand in self.operands
            )
        )

    def vector(self, values: Values, operand: Operand) -> Any:
        """The number of elements of an operand that a thread loads at once, shape (n,)."""
        return values.get(operand.knob, 1)


def _product(parts: dict[str, Numbers]) -> Numbers:
    return np.asarray(np.prod(list(parts.values()), axis=0))


def aligned_bytes(sizes: Sequence[Any]) -> Numbers:
    """Bytes of arrays, of shape (n,) each, that begin at multiples of ``ALIGNMENT``."""
    return np.asarray(sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes))

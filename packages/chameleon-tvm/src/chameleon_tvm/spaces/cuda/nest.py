"""The loop nest that all CUDA templates share, described so that arrays of tiles can be judged.

Every output axis is split into blocks, virtual threads, threads and an inner part, every reduction
axis into steps and an inner part. In each step the threads of a block copy what all of them read
into shared memory (cooperative fetching); sums stay in registers.
"""

from __future__ import annotations

from math import prod
from typing import Any

import attrs
import numpy as np
from chameleon_core.space import Values
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

ALIGNMENT = 64
"""Bytes at a multiple of which TVM's CUDA code puts every array."""

BLOCK, VIRTUAL, THREAD, INNER = range(4)
"""Parts of an output axis, outermost first, as in the paper's template (CHAMELEON, Table 1)."""


@attrs.frozen(kw_only=True)
class Axis:
    """A loop that a knob tiles.

    Attributes:
        name: as in ``tile_<name>``.
        extent: its iterations.
        whole: whether it is left as it is, without a knob (a filter's taps).
    """

    name: str
    extent: int
    whole: bool = False

    @property
    def knob(self) -> str:
        """The name of its knob."""
        return f"tile_{self.name}"


@attrs.frozen(kw_only=True)
class Operand:
    """An input that is staged in shared memory.

    Attributes:
        name: as in ``vector_<name>``.
        dimensions: for each dimension, how far the index moves with each axis.
        vector_axis: the axis along which neighbours in memory can be loaded as a vector, whatever
            the tile; None if there is none.
        turned: whether the last two dimensions change places in shared memory. Threads that differ
            in the one before the last then read neighbours, from different banks.
    """

    name: str
    dimensions: tuple[dict[str, int], ...]
    vector_axis: str | None = None
    turned: bool = False

    @property
    def knob(self) -> str:
        """The name of the knob that tells how many elements a thread loads at once."""
        return f"vector_{self.name}"

    @property
    def axes(self) -> frozenset[str]:
        """The axes that it depends on."""
        return frozenset(axis for dimension in self.dimensions for axis in dimension)

    def elements(self, tile: dict[str, Any]) -> Any:
        """Elements of the smallest box that holds what a tile reads.

        Args:
            tile: axis name to its extent in the tile; arrays or numbers.
        """
        boxes = [self._box(dimension, tile) for dimension in self.dimensions]
        return prod(boxes, start=1)

    def run(self, tile: dict[str, Any]) -> Any:
        """Elements of that box that are neighbours in memory."""
        return self._box(self.dimensions[-1], tile)

    @staticmethod
    def _box(dimension: dict[str, int], tile: dict[str, Any]) -> Any:
        return 1 + sum(step * (tile[axis] - 1) for axis, step in dimension.items())


@attrs.frozen(kw_only=True)
class Nest:
    """One operator's loop nest.

    Attributes:
        outputs: the output axes that are tiled; threads are numbered in this order, so the last
            one is the one that is contiguous in the output.
        reductions: the axes that are summed over.
        copies: how many independent nests there are (images, groups), a block of threads each.
        operands: the inputs that are staged.
        flop: floating-point operations of all.
    """

    outputs: tuple[Axis, ...]
    reductions: tuple[Axis, ...]
    copies: int
    operands: tuple[Operand, ...]
    flop: float

    @property
    def points(self) -> int:
        """Outputs of one copy."""
        return prod(axis.extent for axis in self.outputs)

    def parts(self, values: Values, *parts: int) -> dict[str, Numbers]:
        """The product of some parts of every output axis's tile, by axis; arrays of shape (n,)."""
        return {
            axis.name: np.prod(values[axis.knob][:, list(parts)], axis=1) for axis in self.outputs
        }

    def inner(self, values: Values) -> dict[str, Any]:
        """The iterations of each reduction axis in one step of the outermost reduction loop."""
        return {
            axis.name: axis.extent if axis.whole else values[axis.knob][:, 1]
            for axis in self.reductions
        }

    def block(self, values: Values) -> dict[str, Any]:
        """The iterations of every axis in one step of a whole block of threads, by axis."""
        return self.parts(values, VIRTUAL, THREAD, INNER) | self.inner(values)

    def threads(self, values: Values) -> Numbers:
        """Threads of a block."""
        return _product(self.parts(values, THREAD))

    def virtual_threads(self, values: Values) -> Numbers:
        """Virtual threads of a thread."""
        return _product(self.parts(values, VIRTUAL))

    def sums(self, values: Values) -> Numbers:
        """Sums that a thread keeps."""
        return _product(self.parts(values, VIRTUAL, INNER))

    def fetched(self, values: Values) -> dict[str, Numbers]:
        """The elements that a step stages of every operand, by operand."""
        block = self.block(values)
        return {operand.name: operand.elements(block) for operand in self.operands}

    def shared_bytes(self, values: Values, element_bytes: int) -> Numbers:
        """Shared memory of a block."""
        arrays = [elements * element_bytes for elements in self.fetched(values).values()]
        total: Numbers = np.asarray(sum(-(-size // ALIGNMENT) * ALIGNMENT for size in arrays))
        return total

    def blocks(self, values: Values) -> Numbers:
        """Blocks of all copies."""
        return self.copies * _product(self.parts(values, BLOCK))

    def steps(self, values: Values) -> Numbers:
        """How often a block stages its operands."""
        chosen = [values[axis.knob][:, 0] for axis in self.reductions if not axis.whole]
        steps: Numbers = np.prod(chosen, axis=0) if chosen else np.ones(1, np.int64)
        return steps

    def per_step(self, values: Values) -> Numbers:
        """Products that each sum adds up in one step."""
        total: Numbers = np.asarray(prod(self.inner(values).values(), start=1))
        return total

    def operands_of_a_thread(self, values: Values) -> Numbers:
        """Elements that a thread reads from shared memory for one product of each of its sums."""
        own = self.parts(values, VIRTUAL, INNER)
        return np.asarray(
            sum(
                prod((own[axis] for axis in operand.axes if axis in own), start=1)
                for operand in self.operands
            )
        )

    def vector(self, values: Values, operand: Operand) -> Any:
        """Elements of an operand that a thread loads at once."""
        return values.get(operand.knob, 1)


def _product(parts: dict[str, Numbers]) -> Numbers:
    product: Numbers = np.prod(list(parts.values()), axis=0)
    return product

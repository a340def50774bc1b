"""The loop nest that all CUDA templates share, described for arrays of configurations.

Every output axis is split into blocks, virtual threads, threads and an inner part. Every reduction
axis is split into steps and an inner part. In each step, the threads of a block copy all data that
they need into shared memory (cooperative fetching). Sums stay in registers.
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
    """A loop of an operator. A knob divides the loop into tiles on a GPU, unless it is ``whole``.

    Attributes:
        name: Name of the axis, as in ``tile_<name>``.
        extent: Number of iterations.
        whole: Whether the loop is not tiled and has no knob, such as the loops over a filter.
    """

    name: str
    extent: int
    whole: bool = False

    @property
    def knob(self) -> str:
        """The name of the knob that tiles this axis."""
        return f"tile_{self.name}"


@attrs.frozen(kw_only=True)
class Operand:
    """An input that blocks of threads stage in shared memory.

    Attributes:
        name: Name of the operand, as in ``vector_<name>``.
        dimensions: For each dimension of the array, how far its index moves per iteration of an
            axis, by the axis's name.
        vector_axis: The axis along which a thread can load neighbours in memory as a vector,
            whatever the tile; None if no axis allows this.
        turned: Whether the last two dimensions change places in shared memory. Then threads that
            differ in the dimension before the last read from different banks.
    """

    name: str
    dimensions: tuple[dict[str, int], ...]
    vector_axis: str | None = None
    turned: bool = False

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

    def run(self, tile: dict[str, Any]) -> Any:
        """Length of the rows that a tile reads, in elements; the elements of a row are contiguous.

        The rows are those of the smallest box that contains all elements which the tile reads. They
        run along the last dimension of the array.
        """
        return self._box(self.dimensions[-1], tile)

    @staticmethod
    def _box(dimension: dict[str, int], tile: dict[str, Any]) -> Any:
        return 1 + sum(step * (tile[axis] - 1) for axis, step in dimension.items())


@attrs.frozen(kw_only=True)
class Nest:
    """The loop nest of an operator, as the GPU templates schedule it.

    Attributes:
        outputs: The output axes that are tiled. Threads are numbered in this order, so the last
            axis must be contiguous in the output.
        reductions: The axes that are summed over.
        copies: Number of independent nests, such as one for each image or group. Each has its own
            blocks of threads.
        operands: The inputs that are staged in shared memory.
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

    def parts(self, values: Values, *parts: int) -> dict[str, Numbers]:
        """Multiply some of the four factors into which a knob splits each output axis.

        Args:
            parts: The factors to multiply, out of ``BLOCK``, ``VIRTUAL``, ``THREAD`` and ``INNER``.

        Returns:
            The products by axis name, each of shape (n,).
        """
        return {
            axis.name: np.prod(values[axis.knob][:, list(parts)], axis=1) for axis in self.outputs
        }

    def inner(self, values: Values) -> dict[str, Any]:
        """Iterations of each reduction axis in one step, by axis."""
        return {
            axis.name: axis.extent if axis.whole else values[axis.knob][:, 1]
            for axis in self.reductions
        }

    def block(self, values: Values) -> dict[str, Any]:
        """Number of iterations of each axis that a block of threads runs in one step.

        The result maps the name of each axis to numbers of shape (n,).
        """
        return self.parts(values, VIRTUAL, THREAD, INNER) | self.inner(values)

    def threads(self, values: Values) -> Numbers:
        """Number of threads of a block; shape (n,)."""
        return _product(self.parts(values, THREAD))

    def virtual_threads(self, values: Values) -> Numbers:
        """Number of virtual threads that each thread runs."""
        return _product(self.parts(values, VIRTUAL))

    def sums(self, values: Values) -> Numbers:
        """Number of sums that a thread keeps; shape (n,)."""
        return _product(self.parts(values, VIRTUAL, INNER))

    def fetched(self, values: Values) -> dict[str, Numbers]:
        """Number of elements of each operand that a step copies to shared memory.

        The result maps the name of each operand to numbers of shape (n,).
        """
        block = self.block(values)
        return {operand.name: operand.elements(block) for operand in self.operands}

    def shared_bytes(self, values: Values, element_bytes: int) -> Numbers:
        """Bytes of shared memory of a block; shape (n,)."""
        arrays = [elements * element_bytes for elements in self.fetched(values).values()]
        return aligned(arrays)

    def blocks(self, values: Values) -> Numbers:
        """Number of blocks of threads in a launch, for all copies of the nest; shape (n,)."""
        return self.copies * _product(self.parts(values, BLOCK))

    def steps(self, values: Values) -> Numbers:
        """Number of times that a block copies its operands to shared memory, shape (n,)."""
        chosen = [values[axis.knob][:, 0] for axis in self.reductions if not axis.whole]
        return np.asarray(np.prod(chosen, axis=0) if chosen else np.ones(1, np.int64))

    def per_step(self, values: Values) -> Numbers:
        """Number of products that one iteration of the kernel's outer reduction loop adds to a sum.

        Returns:
            Array of shape (n,).
        """
        return np.asarray(prod(self.inner(values).values(), start=1))

    def operands_of_a_thread(self, values: Values) -> Numbers:
        """Number of elements that a thread reads from shared memory to add one product to each sum.

        A thread keeps several sums, whose products share elements. The result has shape (n,).
        """
        own = self.parts(values, VIRTUAL, INNER)
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


def aligned(sizes: Sequence[Any]) -> Numbers:
    """Bytes of arrays that begin at multiples of ``ALIGNMENT`` one after another.

    Args:
        sizes: Bytes of each array, of shape (n,).
    """
    return np.asarray(sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes))

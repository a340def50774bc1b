"""The tiled loop nest of a sketch, with knobs in place of numbers.

Each loop runs over a factor of a knob. From the factors follow the tiles, footprints, threads and
legal compute locations of many configurations at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import Values
from numpy.typing import NDArray

from chameleon_tvm._quick_tvm import Schedule, tvm
from chameleon_tvm._spaces.sketch.expressions import evaluate

Extents = NDArray[np.float64]

_ONE: Extents = np.ones(1)


def product(extents: Iterable[Extents]) -> Any:
    """The element-wise product of several arrays; ones if there are none."""
    return math.prod(extents, start=np.ones(1))


def total(arrays: Iterable[Extents]) -> Any:
    """The element-wise sum of several arrays; zeros if there are none."""
    return sum(arrays, start=np.zeros(1))


MAX_UNROLLED = 64
"""Largest number of statements of a register tile that is unrolled. Larger tiles stay loops."""


@attrs.frozen(kw_only=True)
class Axis:
    """A loop of the anchor block before scheduling."""

    name: str
    extent: int
    reduction: bool


@attrs.frozen(kw_only=True)
class Access:
    """A buffer that the anchor block of a sketch, which computes the sums, reads or writes.

    Attributes:
        itemsize: Bytes of an element.
        strides: For each dimension, how far its index moves if an axis moves by one, by axis name.
        written: Whether the buffer is the output.
    """

    name: str
    shape: tuple[int, ...]
    itemsize: int
    strides: tuple[Mapping[str, int], ...]
    written: bool

    def reads_axis(self, axis: str) -> bool:
        """Whether the accessed elements depend on the axis."""
        return any(dimension.get(axis) for dimension in self.strides)

    def footprint(self, tile: Mapping[str, Extents]) -> Extents:
        """Number of bytes of the buffer that a tile touches, shape (n,)."""
        size: Any = _ONE * self.itemsize
        for extent, dimension in zip(self.shape, self.strides, strict=True):
            if extent == 1 or not dimension:
                continue
            span: Any = 1 - sum(map(abs, dimension.values()))
            for axis, stride in dimension.items():
                span = span + (tile[axis] if abs(stride) == 1 else abs(stride) * tile[axis])
            size = size * (span if len(dimension) == 1 else np.minimum(span, extent))
        return np.asarray(size)


@attrs.frozen(kw_only=True)
class Part:
    """A loop or a part of a fused loop: factor ``index`` of a tile knob, or a constant."""

    axis: Axis
    knob: str | None
    index: int
    extent: int = 1


@attrs.frozen(kw_only=True)
class Nest:
    """The loops of a sketch's anchor block, which computes the operator's sums.

    Attributes:
        block: Name of the anchor block.
        axes: The unscheduled loops.
        loops: The scheduled loops, outermost first. A fused loop has several parts.
        threads: The GPU's thread axis of a loop, by the loop's position in ``loops``.
        accesses: The buffers that the block reads or writes.
        staged_at: Position of the loop in which outputs are copied from their local buffer. It is
            one number, an array of shape (n,), or None without a local buffer.
        unroll: Name of the knob that limits automatic unrolling, or None.
        locations: Names of the compute-location knobs of blocks whose outputs the anchor reads.
        shared_at: Position of the loop in which an input is copied to shared memory, by the
            input's number as a string.
        max_parallel: The largest extent of the fused parallel loop, or None.
        max_vector: The largest number of lanes of the innermost loop, or None.
    """

    block: str
    axes: tuple[Axis, ...]
    loops: tuple[tuple[Part, ...], ...]
    threads: Mapping[int, str]
    accesses: tuple[Access, ...]
    staged_at: int | NDArray[np.intp] | None = None
    unroll: str | None = None
    locations: tuple[str, ...] = ()
    shared_at: Mapping[str, int] = attrs.field(factory=dict)
    max_parallel: int | None = None
    max_vector: int | None = None

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The parts of all loops of the nest, outermost first; a fused loop has several parts."""
        return tuple(part for loop in self.loops for part in loop)

    def extents(self, values: Values) -> list[Extents]:
        """The number of iterations of every part of the nest, each of shape (n,) or (1,)."""
        columns = {
            knob: np.ascontiguousarray(values[knob].T, np.float64)
            for knob in {part.knob for part in self.parts if part.knob is not None}
        }
        return [
            columns[part.knob][part.index]
            if part.knob is not None
            else np.full(1, float(part.extent))
            for part in self.parts
        ]

    @cached_property
    def levels(self) -> list[int]:
        """The position in ``parts`` at which each run of spatial or reduction loops begins."""
        starts: list[int] = []
        previous: tuple[bool, int] | None = None
        for position, part in enumerate(self.parts):
            level = (part.axis.reduction, part.index)
            if level != previous:
                starts.append(position)
            previous = level
        return starts

    @cached_property
    def first_reduction_part(self) -> int:
        """The position in ``parts`` of the outermost reduction loop."""
        numbers = (p for p, part in enumerate(self.parts) if part.axis.reduction)
        return next(numbers, len(self.parts))

    def position_of_first_reduction(self) -> int:
        """The position in ``loops`` of the outermost reduction loop."""
        return next(
            (p for p, loop in enumerate(self.loops) if any(x.axis.reduction for x in loop)),
            len(self.loops),
        )

    def position_after_first_reductions(self) -> int:
        """The position in ``loops`` after the outermost run of reduction loops."""
        position = self.position_of_first_reduction()
        while position < len(self.loops) and self.loops[position][0].axis.reduction:
            position += 1
        return position

    def tile(self, start: int, extents: list[Extents]) -> dict[str, Extents]:
        """By axis, the extents that the parts from ``start`` inwards cover."""
        tile: dict[str, Extents] = {axis.name: _ONE for axis in self.axes}
        for part, extent in zip(self.parts[start:], extents[start:], strict=True):
            if part.knob is not None or part.extent > 1:
                known = tile[part.axis.name]
                tile[part.axis.name] = extent if known is _ONE else known * extent
        return tile

    def split_at(
        self, location: NDArray[Any], extents: list[Extents]
    ) -> tuple[dict[str, Extents], Extents]:
        """The extents of the tile inside a loop, by axis, and how many times it is run."""
        tile: dict[str, Extents] = {axis.name: np.ones(1) for axis in self.axes}
        trips: Extents = np.ones(1)
        deepest = int(location.max(initial=-1))
        for position, (part, extent) in enumerate(zip(self.parts, extents, strict=True)):
            name = part.axis.name
            if position > deepest:
                tile[name] = tile[name] * extent
                continue
            inside = location < position
            tile[name] = tile[name] * np.where(inside, extent, 1.0)
            trips = trips * np.where(inside, 1.0, extent)
        return tile, trips


def axes_of(schedule: Schedule, block: Any) -> tuple[Axis, ...]:
    """The loops around a block, with the names of their variables."""
    reductions = {loop: reduction for _, loop, reduction in _bindings(schedule, block)}
    axes = []
    for handle in schedule.get_loops(block):
        loop = schedule.get(handle)
        name = str(loop.loop_var.name)
        axes.append(Axis(name=name, extent=int(loop.extent), reduction=reductions.get(name, False)))
    return tuple(axes)


def _bindings(schedule: Schedule, block: Any) -> list[tuple[str, str, bool]]:
    """For each variable of a block: its name, its loop's name, and whether it is summed over."""
    realize = schedule.get(schedule.get_loops(block)[-1]).body
    while not isinstance(realize, tvm.s_tir.SBlockRealize):
        realize = realize.body
    return [
        (
            str(variable.var.name),
            str(getattr(value, "name", "")),
            int(variable.iter_type) == int(tvm.tirx.IterVar.CommReduce),
        )
        for variable, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
    ]


def accesses_of(schedule: Schedule, block: Any) -> tuple[Access, ...]:
    """Describe every buffer that a block reads or writes, with its strides."""
    names = {variable: loop for variable, loop, _ in _bindings(schedule, block)}
    origin = dict.fromkeys(names, 0)
    body = schedule.get(block)
    accesses = []
    for written, regions in ((False, body.reads), (True, body.writes)):
        for region in regions:
            strides = []
            for dimension in region.region:
                start = evaluate(dimension.min, origin)
                moved = {
                    names[variable]: int(evaluate(dimension.min, {**origin, variable: 1}) - start)
                    for variable in names
                }
                strides.append({axis: step for axis, step in moved.items() if step})
            accesses.append(
                Access(
                    name=str(region.source.name),
                    shape=tuple(int(extent) for extent in region.source.shape),
                    itemsize=np.dtype(str(region.source.dtype)).itemsize,
                    strides=tuple(strides),
                    written=written,
                )
            )
    return tuple(accesses)

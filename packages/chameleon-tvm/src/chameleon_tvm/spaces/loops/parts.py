"""Divides long reductions to few numbers, such as the sum of a tensor, into parts for threads."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes

from chameleon_tvm.quick_tvm import Schedule, tirx, tvm
from chameleon_tvm.spaces.loops.partial_sums import PARTIAL
from chameleon_tvm.spaces.loops.trees import structural_map

MOST_PARTS = 64
"""Largest number of parts into which a loop is split. Each of many threads gets several parts, so
that all threads end at about the same time."""

FEW_PARTS = 8
"""Smallest number of parts that keep all threads busy."""

WORTH_THREADS = 16_384
"""Number of operations from which several threads pay. With fewer, waking the other threads (some
microseconds) costs more than they save."""

_LEAST_LARGEST = 6e4
"""A lower bound of the largest number of each floating-point dtype."""

_INITIAL = "_init"
"""The end of a block's name if TVM made the block of a reduction's initial value."""


def kinds(schedule: Schedule, block: Any) -> tuple[list[int], list[int]]:
    """Positions of a block's spatial iterators and of its reduction iterators."""
    iterators = schedule.get(block).iter_vars
    spatial = [
        number for number, axis in enumerate(iterators) if axis.iter_type == tirx.IterVar.DataPar
    ]
    return spatial, [number for number in range(len(iterators)) if number not in spatial]


def _extents(schedule: Schedule, block: Any) -> list[int]:
    return [int(schedule.get(loop).extent) for loop in schedule.get_loops(block)]


def part_of(schedule: Schedule, block: Any, lanes: int) -> Any:
    """Divide a long reduction to few numbers into parts, and return the block that reduces a part.

    Another block then reduces the results of the parts. Blocks of other kinds are returned as they
    are. TVM divides maxima and minima only if they begin at a finite number.

    Args:
        schedule: The schedule of the block's function.
        block: The block, whose loops have not changed.
        lanes: Number of elements of a vector.
    """
    spatial, reduced = kinds(schedule, block)
    loops = schedule.get_loops(block)
    extents = [int(schedule.get(loop).extent) for loop in loops]
    few = math.prod(extents[: len(spatial)]) < FEW_PARTS and math.prod(extents) >= WORTH_THREADS
    if not (few and reduced and reduced == [*range(len(spatial), len(loops))]):
        return block
    long = (number for number in reduced if extents[number] >= FEW_PARTS)
    chosen = next(long, reduced[-1])
    part, inner = loops[chosen], []
    if extents[chosen] > MOST_PARTS:
        whole = PARTIAL * lanes if chosen == reduced[-1] else 1
        most = math.ceil(extents[chosen] / MOST_PARTS)
        part, *inner = cut(schedule, part, max(whole, most), whole)
    others = [loop for number, loop in enumerate(loops) if number != chosen]
    schedule.reorder(part, *others[:chosen], *inner, *others[chosen:])
    return schedule.rfactor(part, 0)


def cut(schedule: Schedule, loop: Any, most: int, lanes: int) -> list[Any]:
    """Split a loop into nearly equal parts of whole vectors, as far as possible."""
    extent = int(schedule.get(loop).extent)
    width = lanes * math.ceil(extent / math.ceil(extent / most) / lanes)
    return list(schedule.split(loop, [None, min(width, extent)]))


def begun(function: Any, *, infinite: bool) -> Any:
    """Change the number at which maxima and minima begin.

    Frameworks begin at infinity. TVM begins at the largest finite number of the dtype, so that the
    maximum of infinite numbers would be finite.

    Args:
        function: A ``PrimFunc`` of TVM's blocks.
        infinite: Whether maxima and minima shall begin at infinity.
    """

    def changed(number: Any) -> Any:
        value, dtype = float(number.value), str(number.ty)
        if abs(value) < _LEAST_LARGEST:
            return number
        most = float(ml_dtypes.finfo(dtype).max)
        old, new = (most, math.inf) if infinite else (math.inf, most)
        return tirx.FloatImm(dtype, math.copysign(new, value)) if abs(value) == old else number

    def mapped(block: Any) -> Any:
        parts = [block.body, block.init]
        for number in (
            (1,) if block.init is not None else (0,) if block.name_hint.endswith(_INITIAL) else ()
        ):
            parts[number] = structural_map(parts[number], (tirx.FloatImm, changed))
        body, init = parts
        if body.same_as(block.body) and (init is None or init.same_as(block.init)):
            return block
        return tvm.s_tir.SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            block.name_hint,
            body,
            init,
            block.alloc_buffers,
            block.match_buffers,
            block.annotations,
        )

    body = structural_map(function.body, (tvm.s_tir.SBlock, mapped))
    return function if body.same_as(function.body) else function.with_body(body)

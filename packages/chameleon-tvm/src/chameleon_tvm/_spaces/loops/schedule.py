"""Schedules a network's fused functions, such as a softmax, in one pass over rows if possible.

A softmax or a normalization reads each row several times: for its maximum, its sum and its values.
If each block is scheduled separately, every pass goes through memory and wakes the threads again.
This module computes blocks with equal leading axes row by row in one parallel loop, so that a row
stays in L1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs

from chameleon_tvm._quick_tvm import Schedule, tirx, tvm
from chameleon_tvm._spaces.loops.lowered import LANES
from chameleon_tvm._spaces.loops.partial_sums import (
    FEW_PARTS,
    MOST_PARTS,
    WORTH_THREADS,
    begun,
    cut,
    kinds,
    part_of,
)
from chameleon_tvm._spaces.loops.trees import found, structural_equal, structural_map, uses
from chameleon_tvm._spaces.loops.vectors import MOST_STEP, step_of

SHORTEST = 64
"""Smallest number of elements of a part, if there are more than ``MOST_PARTS`` parts. Shorter parts
would consist mostly of incomplete vectors."""


def plan_parts(extents: Sequence[int]) -> int:
    """Number of equal parts into which threads divide the elements of a tensor.

    Outer axes are divided into single indices, and at most one axis is cut into longer pieces. So a
    part is contiguous in memory, and has whole rows if possible. There are more than ``MOST_PARTS``
    parts only if there would be less than ``FEW_PARTS`` else.
    """
    parts, elements = 1, math.prod(extents)
    for extent in extents:
        elements //= extent
        if parts * extent > MOST_PARTS:
            cuts = divisor(extent, MOST_PARTS // parts)
            few = parts * cuts < FEW_PARTS and elements >= SHORTEST
            return parts * (extent if few else cuts)
        parts *= extent
    return parts


COSTLY = 8
"""Number of simple operations in the time of an elementary function, both on vectors."""


@attrs.frozen(kw_only=True)
class LoopPlan:
    """A schedule of a function's loops.

    Attributes:
        rows: Whether blocks that share their leading axes become one pass over these axes.
        threads: Whether the iterations of the outer loops are divided among all threads.
        block: Largest number of neighbours in the input that a transposition reads before the next
            neighbours of the output; 1 for a simple loop.
        columns: Number of vectors that a loop accumulates at once, if a reduction is over an outer
            axis. Each lane of a vector then holds a different sum.
    """

    rows: bool = True
    threads: bool = True
    block: int = 32
    columns: int = 8


def scheduled(function: Any, plan: LoopPlan, lanes: int) -> Any:
    """Schedule a function's blocks for several threads, and so that its loops can be vectorized.

    Args:
        function: A ``PrimFunc`` of TVM's blocks with constant extents.
        plan: The schedule.
        lanes: Number of float32 elements of a vector register.

    Returns:
        The scheduled function, which ``loops_of`` turns into loops over arrays.

    Raises:
        InternalError, ScheduleError: TVM refuses a step (``REFUSED``).
    """
    schedule = Schedule(tvm.IRModule({"main": function}))
    root = schedule.get_sblock("root")
    _inline(schedule, root)
    blocks = list(schedule.get_child_blocks(root))
    nested = _by_rows(schedule, plan, lanes) if plan.rows and len(blocks) > 1 else None
    if nested is None:
        nested = Schedule(tvm.IRModule({"main": begun(schedule.mod["main"], infinite=False)}))
        for block in nested.get_child_blocks(nested.get_sblock("root")):
            _nest(nested, block, plan, lanes)
    result = nested.mod["main"]
    if not begun(function, infinite=False).same_as(function):
        result = begun(result, infinite=True)
    return result.with_attrs({**dict(function.attrs or {}), LANES: lanes})


def default_plan(function: Any) -> LoopPlan:
    """The schedule that is expected to be best for a function, without measurements.

    It uses all threads if the function has enough work.

    Args:
        function: A ``PrimFunc`` of TVM's blocks.
    """
    schedule = Schedule(tvm.IRModule({"main": function}))
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    work = sum(
        size(schedule, block) * (COSTLY if is_costly(schedule.get(block)) else 1)
        for block in blocks
    )
    return LoopPlan(threads=work >= WORTH_THREADS)


# -- what blocks are: their iterators, sizes, and how they read memory ----------------------

_COSTLY = ("exp", "log", "tanh", "erf", "pow", "sqrt", "sin", "cos", "atan", "sigmoid")
"""Parts of the names of functions that take many times as long as reading a number."""


def is_costly(block: Any) -> bool:
    """Whether a block's operations take much longer than reading its numbers."""
    return any(
        isinstance(node, tirx.Div) or any(part in str(node.op) for part in _COSTLY)
        for node in found(block.body, (tvm.ir.Call, tirx.Div))
    )


def same_places(block: Any) -> bool:
    """Whether a block computes each element only from scalars and input elements of its own index.

    Arrays of one element count as scalars.
    """
    [write] = block.writes
    wanted = [axis.min for axis in write.region]
    if has_gaps(block) or computes_with_places(block):
        return False
    extents = [int(extent) for extent in write.source.shape]
    return all(
        (
            [int(extent) for extent in read.source.shape] == extents
            and all(
                structural_equal(axis.min, other)
                for axis, other in zip(read.region, wanted, strict=True)
            )
        )
        or math.prod(int(extent) for extent in read.source.shape) == 1
        for read in block.reads
    )


def interleaved(block: Any) -> int:
    """Number of inputs (or parts of one) whose elements alternate in a block's output, or 1.

    A channel shuffle, for example, alternates the elements of several parts of its input.
    """
    last = block.iter_vars[-1]
    extent = int(last.dom.extent)
    remainders = [node for node in found(block.body, tirx.FloorMod) if node.a.same_as(last.var)]
    counts = [int(getattr(node.b, "value", 0)) for node in remainders]
    return min((n for n in counts if 1 < n < extent and extent % n == 0), default=1)


def has_gaps(block: Any) -> bool:
    """Whether a block reads or writes an array with explicit strides.

    Such an array is a part of a larger array, so there may be gaps between its rows in memory.
    """
    return any(len(region.source.ty.strides) for region in (*block.reads, *block.writes))


def computes_with_places(block: Any) -> bool:
    """Whether a block computes with its loop indices, and not only reads elements at them."""
    values = [store.value for store in found(block.body, tirx.BufferStore)]
    placeless = [
        structural_map(
            value, [(tvm.ir.TensorLoad, lambda load: tirx.FloatImm("float32", 0.0).astype(load.ty))]
        )
        for value in values
    ]
    return any(uses(value, axis.var) for value in placeless for axis in block.iter_vars)


def other_axis(block: Any) -> int | None:
    """The axis along which a block reads contiguous memory, if it is not the block's last axis.

    For example, a transposition writes contiguous memory along its last axis and reads it along
    another axis. If its loops are not tiled over both axes, each read takes another cache line.

    Returns:
        The number of the axis, or None if no input is read in this way.
    """
    variables = [axis.var for axis in block.iter_vars]
    for read in block.reads:
        if not len(read.region):
            continue
        *before, last = [part.min for part in read.region]
        places = [number for number, variable in enumerate(variables) if uses(last, variable)]
        apart = any(uses(index, variables[-1]) for index in before)
        if apart and len(places) == 1 and places[0] != len(variables) - 1:
            return places[0]
    return None


def contiguous(block: Any, reduced: Sequence[int]) -> bool:
    """Whether the numbers that a block adds up are neighbours in memory.

    This holds if every input that changes along the reduced axes is contiguous along one of these
    axes. It does not hold for a matrix product, because one factor is contiguous along an axis of
    the output. The result is also False for a window that moves along contiguous memory. A vector
    can then hold the sums of neighbouring windows instead.
    """

    def occur(index: Any) -> bool:
        return any(uses(index, block.iter_vars[number].var) for number in reduced)

    spatial = [axis.var for n, axis in enumerate(block.iter_vars) if n not in reduced]
    varying = [region for region in block.reads if any(occur(part.min) for part in region.region)]
    last = [region.region[-1].min for region in varying]
    steps = [step_of(index, spatial[-1]) for index in last] if spatial else [0]
    windows = all(step in range(1, MOST_STEP + 1) for step in steps)
    return bool(varying) and all(map(occur, last)) and not windows


def size(schedule: Schedule, block: Any) -> int:
    """Number of times that a block is computed."""
    return math.prod(int(axis.dom.extent) for axis in schedule.get(block).iter_vars)


def divisor(extent: int, most: int) -> int:
    """The largest divisor of ``extent`` that is at most ``most``."""
    return next(size for size in range(min(extent, most), 0, -1) if extent % size == 0)


# -- one pass over rows ---------------------------------------------------------------------


def _by_rows(schedule: Schedule, plan: LoopPlan, lanes: int) -> Schedule | None:
    """All blocks in one loop over their common leading axes; None if they have none."""
    fused = schedule.copy()
    *before, last = fused.get_child_blocks(fused.get_sblock("root"))
    if any(not fused.get_consumers(block) for block in before) or kinds(fused, last)[1]:
        return None  # several outputs, or a sum at the end
    blocks = (*before, last)
    extents = [_spatial_extents(fused, block) for block in blocks]
    summed = [block for block in blocks if kinds(fused, block)[1]]
    along = [_sums_along_memory(fused, block) for block in summed]
    loops = fused.get_loops(last)
    if all(along):
        shared = 0
        while all(len(e) > shared for e in extents) and len({e[shared] for e in extents}) == 1:
            shared += 1
        outer = _leading(fused, loops, shared)
    elif not any(along) and all(e == extents[-1] for e in extents):
        part, _ = cut(fused, loops[-1], plan.columns * lanes, lanes)
        outer = [*loops[:-1], part]
    else:
        return None
    if not outer:
        return None
    row = fused.fuse(*outer)
    try:
        for block in reversed(before):
            fused.compute_at(block, row, preserve_unit_loops=True)
    except tvm.s_tir.schedule.ScheduleError:
        return None
    if plan.threads:
        fused.parallel(row)
    for block in summed:
        _split_initial(fused, block, columns=not all(along))
    return fused


def _split_initial(schedule: Schedule, block: Any, *, columns: bool) -> None:
    """Move a reduction's initial value out of its loops, which come last or before the columns."""
    _, reduced = kinds(schedule, block)
    loops = schedule.get_loops(block)
    sums = loops[len(loops) - len(reduced) :]
    if columns:
        schedule.reorder(*sums, loops[len(loops) - len(reduced) - 1])
    schedule.decompose_reduction(block, sums[0])


def _sums_along_memory(schedule: Schedule, block: Any) -> bool:
    """Whether a block has no sum, or a sum whose terms are neighbours in memory."""
    spatial, reduced = kinds(schedule, block)
    behind = reduced == list(range(len(spatial), len(spatial) + len(reduced)))
    return not reduced or (behind and contiguous(schedule.get(block), reduced))


def _spatial_extents(schedule: Schedule, block: Any) -> list[int]:
    iterators = schedule.get(block).iter_vars
    extents = (int(iterators[number].dom.extent) for number in kinds(schedule, block)[0])
    return [extent for extent in extents if extent > 1]


def _leading(schedule: Schedule, loops: Sequence[Any], count: int) -> list[Any]:
    """The leading loops that include ``count`` loops of more than one iteration.

    If this includes the last loop and the others suffice for all threads, the last loop is left out
    for vectors.
    """
    extents = [int(schedule.get(loop).extent) for loop in loops]
    longer = [number for number, extent in enumerate(extents) if extent > 1]
    end = longer[count - 1] + 1 if count else 0
    if end == len(loops) and math.prod(extents[:-1]) >= MOST_PARTS:
        end -= 1
    return list(loops[:end])


# -- a nest for each block ------------------------------------------------------------------


def _nest(schedule: Schedule, block: Any, plan: LoopPlan, lanes: int) -> None:
    block = part_of(schedule, block, lanes)
    spatial, reduced = kinds(schedule, block)
    loops = schedule.get_loops(block)
    if not loops or len(loops) != len(spatial) + len(reduced):
        return
    if not reduced:
        _elementwise(schedule, block, plan, lanes)
    elif _sums_along_memory(schedule, block):
        _deal(schedule, loops[: len(spatial)], plan)
        schedule.decompose_reduction(block, loops[len(spatial)])
    elif spatial:
        _columns(schedule, block, plan, lanes)


def _elementwise(schedule: Schedule, block: Any, plan: LoopPlan, lanes: int) -> None:
    loops = schedule.get_loops(block)
    if same_places(schedule.get(block)):
        _flat(schedule, block, plan)
        return
    ways = interleaved(schedule.get(block))
    if ways > 1 and len(loops) > 1:
        # LLVM interleaves vectors of several sources where ours would gather lanes one by one.
        schedule.unroll(schedule.split(loops[-1], [None, ways])[1])
        _deal(schedule, loops[:-1], plan)
        return
    other = other_axis(schedule.get(block))
    if other is not None and plan.block > 1:
        # The output's axis is inside, and within it a part of the axis that is read.
        rest = [loops[number] for number in range(len(loops) - 1) if number != other]
        count = math.prod(int(schedule.get(loop).extent) for loop in rest)
        extent = int(schedule.get(loops[other]).extent)
        most = max(lanes, min(plan.block, count * extent // FEW_PARTS))
        part, inner = cut(schedule, loops[other], most, lanes)
        count *= int(schedule.get(part).extent)
        length = int(schedule.get(loops[-1]).extent)
        pieces = divisor(length, max(1, min(FEW_PARTS // count, length // SHORTEST)))
        outer, last = schedule.split(loops[-1], [pieces, None])
        schedule.reorder(*rest, part, outer, last, inner)
        _deal(schedule, [*rest, part, outer], plan)
        return
    if len(loops) > 1:
        _deal(schedule, loops[:-1], plan)


def _deal(schedule: Schedule, loops: Sequence[Any], plan: LoopPlan) -> None:
    """Fuse loops into one loop, which all threads share if the plan says so."""
    if not loops:
        return
    outer = schedule.fuse(*loops)
    if plan.threads:
        schedule.parallel(outer)


def _flat(schedule: Schedule, block: Any, plan: LoopPlan) -> None:
    """Turn a block that reads and writes equal indices into one long loop over all axes."""
    loops = schedule.get_loops(block)
    extents = [int(schedule.get(loop).extent) for loop in loops]
    flat = schedule.fuse(*loops)
    if plan.threads:
        outer, _ = schedule.split(flat, [plan_parts(extents), None])
        schedule.parallel(outer)


def _columns(schedule: Schedule, block: Any, plan: LoopPlan, lanes: int) -> None:
    """Schedule sums whose terms are apart in memory: neighbouring sums are added up together."""
    spatial, reduced = kinds(schedule, block)
    loops = schedule.get_loops(block)
    outer, sums = ([loops[number] for number in places] for places in (spatial, reduced))
    outer[-1], last = cut(schedule, outer[-1], plan.columns * lanes, lanes)
    schedule.reorder(*outer, *sums, last)
    _deal(schedule, outer, plan)
    schedule.decompose_reduction(block, sums[0])


def _inline(schedule: Schedule, root: Any) -> None:
    """Compute element-wise blocks where their values are used, unless this repeats much work."""
    for block in schedule.get_child_blocks(root):
        consumers = schedule.get_consumers(block)
        # What two others read is computed once: exponentials cost more than memory does.
        if kinds(schedule, block)[1] or len(consumers) != 1:
            continue
        repeated = size(schedule, consumers[0]) > size(schedule, block)
        if repeated and is_costly(schedule.get(block)):
            continue
        try:
            schedule.compute_inline(block)
        except tvm.s_tir.schedule.ScheduleError:
            continue

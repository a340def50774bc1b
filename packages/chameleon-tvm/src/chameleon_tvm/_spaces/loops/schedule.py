"""Schedules a network's fused functions, such as a softmax, in one pass over rows if possible.

Blocks with equal leading axes are computed row by row in one parallel loop. A row therefore stays
in L1 between its maximum, its sum and its values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs

from chameleon_tvm._quick_tvm import Schedule, tirx, tvm
from chameleon_tvm._spaces.loops.lowering import LANES
from chameleon_tvm._spaces.loops.partial_sums import (
    MAX_PARTS,
    MIN_PARALLEL_OPERATIONS,
    MIN_PARTS,
    divide_reduction,
    iterator_positions,
    split_evenly,
    with_initial_extrema,
)
from chameleon_tvm._spaces.loops.trees import find_nodes, structural_equal, structural_map, uses
from chameleon_tvm._spaces.loops.vectors import MAX_STRIDE, step_of

MIN_PART_ELEMENTS = 64
"""Smallest number of elements of a part, if there are more than ``MAX_PARTS`` parts. Shorter parts
would consist mostly of incomplete vectors."""


def plan_parts(extents: Sequence[int]) -> int:
    """Number of equal parts of a tensor for threads, contiguous and of whole rows if possible."""
    parts, elements = 1, math.prod(extents)
    for extent in extents:
        elements //= extent
        if parts * extent > MAX_PARTS:
            pieces_of_axis = divisor(extent, MAX_PARTS // parts)
            too_few = parts * pieces_of_axis < MIN_PARTS and elements >= MIN_PART_ELEMENTS
            return parts * (extent if too_few else pieces_of_axis)
        parts *= extent
    return parts


EXPENSIVE_OPERATIONS = 8
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
    result_schedule = _fuse_rows(schedule, plan, lanes) if plan.rows and len(blocks) > 1 else None
    if result_schedule is None:
        result_schedule = Schedule(
            tvm.IRModule({"main": with_initial_extrema(schedule.mod["main"], infinite=False)})
        )
        for block in result_schedule.get_child_blocks(result_schedule.get_sblock("root")):
            _schedule_block(result_schedule, block, plan, lanes)
    result = result_schedule.mod["main"]
    if not with_initial_extrema(function, infinite=False).same_as(function):
        result = with_initial_extrema(result, infinite=True)
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
        iteration_count(schedule, block)
        * (EXPENSIVE_OPERATIONS if is_expensive(schedule.get(block)) else 1)
        for block in blocks
    )
    return LoopPlan(threads=work >= MIN_PARALLEL_OPERATIONS)


# -- what blocks are: their iterators, sizes, and how they read memory ----------------------

_EXPENSIVE = ("exp", "log", "tanh", "erf", "pow", "sqrt", "sin", "cos", "atan", "sigmoid", "divide")
"""Parts of the names of functions that take many times as long as reading a number."""

_MOST_MOVED = 8
"""The most numbers among which a block may choose to count as one that only moves them."""


def is_expensive(block: Any) -> bool:
    """Whether a block's operations take much longer than reading its numbers."""
    return any(
        isinstance(node, tirx.Div) or any(part in str(node.op) for part in _EXPENSIVE)
        for node in find_nodes(block.body, (tvm.ir.Call, tirx.Div))
    )


def _only_moves(block: Any) -> bool:
    """Whether a block chooses among a few numbers of others, and computes none."""
    loads = find_nodes(block.body, tvm.ir.TensorLoad)

    def moves(value: Any) -> bool:
        if isinstance(value, tvm.ir.Call) and "if_then_else" in str(value.op):
            return all(map(moves, value.args[1:]))
        return isinstance(value, tvm.ir.TensorLoad)

    is_store = isinstance(block.body, tirx.BufferStore)
    return is_store and len(loads) <= _MOST_MOVED and moves(block.body.value)


def is_elementwise(block: Any) -> bool:
    """Whether a block computes each element only from scalars and its own input elements."""
    [write] = block.writes
    indices = [axis.min for axis in write.region]
    if has_gaps(block) or uses_indices(block):
        return False
    extents = [int(extent) for extent in write.source.shape]
    return all(
        (
            [int(extent) for extent in read.source.shape] == extents
            and all(
                structural_equal(axis.min, input_axis)
                for axis, input_axis in zip(read.region, indices, strict=True)
            )
        )
        or math.prod(int(extent) for extent in read.source.shape) == 1
        for read in block.reads
    )


def interleaved_inputs(block: Any) -> int:
    """Number of inputs whose elements alternate in the output, as in a channel shuffle, or 1."""
    last = block.iter_vars[-1]
    extent = int(last.dom.extent)
    remainders = [
        node for node in find_nodes(block.body, tirx.FloorMod) if node.a.same_as(last.var)
    ]
    counts = [int(getattr(node.b, "value", 0)) for node in remainders]
    return min((n for n in counts if 1 < n < extent and extent % n == 0), default=1)


def has_gaps(block: Any) -> bool:
    """Whether a block reads or writes an array with explicit strides."""
    return any(len(region.source.ty.strides) for region in (*block.reads, *block.writes))


def uses_indices(block: Any) -> bool:
    """Whether a block computes with its loop indices, and not only reads elements at them."""
    values = [store.value for store in find_nodes(block.body, tirx.BufferStore)]
    without_loads = [
        structural_map(
            value, [(tvm.ir.TensorLoad, lambda load: tirx.FloatImm("float32", 0.0).astype(load.ty))]
        )
        for value in values
    ]
    return any(uses(value, axis.var) for value in without_loads for axis in block.iter_vars)


def transposed_axis(block: Any) -> int | None:
    """The axis along which a block reads contiguous memory, if it is not the block's last axis."""
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


def reduces_contiguous(block: Any, reduced: Sequence[int]) -> bool:
    """Whether the numbers that a block adds up are neighbours in memory.

    It is False for a matrix product, one factor of which is contiguous along an output axis. It is
    also False for windows that move along memory, whose sums are neighbours instead.
    """

    def occur(index: Any) -> bool:
        return any(uses(index, block.iter_vars[number].var) for number in reduced)

    spatial = [axis.var for n, axis in enumerate(block.iter_vars) if n not in reduced]
    varying = [region for region in block.reads if any(occur(part.min) for part in region.region)]
    last = [region.region[-1].min for region in varying]
    steps = [step_of(index, spatial[-1]) for index in last] if spatial else [0]
    windows = all(step in range(1, MAX_STRIDE + 1) for step in steps)
    return bool(varying) and all(map(occur, last)) and not windows


def iteration_count(schedule: Schedule, block: Any) -> int:
    """Number of times that a block is computed."""
    return math.prod(int(axis.dom.extent) for axis in schedule.get(block).iter_vars)


def divisor(extent: int, most: int) -> int:
    """The largest divisor of ``extent`` that is at most ``most``."""
    return next(
        iteration_count
        for iteration_count in range(min(extent, most), 0, -1)
        if extent % iteration_count == 0
    )


# -- one pass over rows ---------------------------------------------------------------------


def _fuse_rows(schedule: Schedule, plan: LoopPlan, lanes: int) -> Schedule | None:
    """All blocks in one loop over their common leading axes; None if they have none."""
    fused = schedule.copy()
    *before, last = fused.get_child_blocks(fused.get_sblock("root"))
    if (
        any(not fused.get_consumers(block) for block in before)
        or iterator_positions(fused, last)[1]
    ):
        return None  # several outputs, or a sum at the end
    blocks = (*before, last)
    extents = [_spatial_extents(fused, block) for block in blocks]
    reductions = [block for block in blocks if iterator_positions(fused, block)[1]]
    along_memory = [_sums_along_memory(fused, block) for block in reductions]
    loops = fused.get_loops(last)
    if all(along_memory):
        shared = 0
        while all(len(e) > shared for e in extents) and len({e[shared] for e in extents}) == 1:
            shared += 1
        outer = _leading_loops(fused, loops, shared)
    elif not any(along_memory) and all(e == extents[-1] for e in extents):
        part, _ = split_evenly(fused, loops[-1], plan.columns * lanes, lanes)
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
    for block in reductions:
        _split_initial(fused, block, columns=not all(along_memory))
    return fused


def _split_initial(schedule: Schedule, block: Any, *, columns: bool) -> None:
    """Move a reduction's initial value out of its loops, which come last or before the columns."""
    _, reduced = iterator_positions(schedule, block)
    loops = schedule.get_loops(block)
    sums = loops[len(loops) - len(reduced) :]
    if columns:
        schedule.reorder(*sums, loops[len(loops) - len(reduced) - 1])
    schedule.decompose_reduction(block, sums[0])


def _sums_along_memory(schedule: Schedule, block: Any) -> bool:
    """Whether a block has no sum, or a sum whose terms are neighbours in memory."""
    spatial, reduced = iterator_positions(schedule, block)
    innermost = reduced == list(range(len(spatial), len(spatial) + len(reduced)))
    return not reduced or (innermost and reduces_contiguous(schedule.get(block), reduced))


def _spatial_extents(schedule: Schedule, block: Any) -> list[int]:
    iterators = schedule.get(block).iter_vars
    extents = (
        int(iterators[number].dom.extent) for number in iterator_positions(schedule, block)[0]
    )
    return [extent for extent in extents if extent > 1]


def _leading_loops(schedule: Schedule, loops: Sequence[Any], count: int) -> list[Any]:
    """The leading loops that include ``count`` loops of more than one iteration."""
    extents = [int(schedule.get(loop).extent) for loop in loops]
    longer = [number for number, extent in enumerate(extents) if extent > 1]
    end = longer[count - 1] + 1 if count else 0
    if end == len(loops) and math.prod(extents[:-1]) >= MAX_PARTS:
        end -= 1
    return list(loops[:end])


# -- a nest for each block ------------------------------------------------------------------


def _schedule_block(schedule: Schedule, block: Any, plan: LoopPlan, lanes: int) -> None:
    block = divide_reduction(schedule, block, lanes)
    spatial, reduced = iterator_positions(schedule, block)
    loops = schedule.get_loops(block)
    if not loops or len(loops) != len(spatial) + len(reduced):
        return
    if not reduced:
        _schedule_elementwise(schedule, block, plan, lanes)
    elif _sums_along_memory(schedule, block):
        _parallelize(schedule, loops[: len(spatial)], plan)
        schedule.decompose_reduction(block, loops[len(spatial)])
    elif spatial:
        _schedule_columns(schedule, block, plan, lanes)


def _schedule_elementwise(schedule: Schedule, block: Any, plan: LoopPlan, lanes: int) -> None:
    loops = schedule.get_loops(block)
    if is_elementwise(schedule.get(block)):
        _schedule_flat(schedule, block, plan)
        return
    inputs = interleaved_inputs(schedule.get(block))
    if inputs > 1 and len(loops) > 1:
        # LLVM interleaves vectors of several sources; a vectorized loop would gather lanes one by
        # one.
        schedule.unroll(schedule.split(loops[-1], [None, inputs])[1])
        _parallelize(schedule, loops[:-1], plan)
        return
    input_axis = transposed_axis(schedule.get(block))
    if input_axis is not None and plan.block > 1:
        # The axis that is contiguous in the output is inside, and innermost is a part of the axis
        # that is contiguous in the input.
        outer_loops = [loops[number] for number in range(len(loops) - 1) if number != input_axis]
        count = math.prod(int(schedule.get(loop).extent) for loop in outer_loops)
        extent = int(schedule.get(loops[input_axis]).extent)
        most = max(lanes, min(plan.block, count * extent // MIN_PARTS))
        part, inner = split_evenly(schedule, loops[input_axis], most, lanes)
        count *= int(schedule.get(part).extent)
        length = int(schedule.get(loops[-1]).extent)
        pieces = divisor(length, max(1, min(MIN_PARTS // count, length // MIN_PART_ELEMENTS)))
        outer, last = schedule.split(loops[-1], [pieces, None])
        schedule.reorder(*outer_loops, part, outer, last, inner)
        _parallelize(schedule, [*outer_loops, part, outer], plan)
        return
    if len(loops) > 1:
        _parallelize(schedule, loops[:-1], plan)


def _parallelize(schedule: Schedule, loops: Sequence[Any], plan: LoopPlan) -> None:
    """Fuse loops into one loop, which all threads share if the plan says so."""
    if not loops:
        return
    outer = schedule.fuse(*loops)
    if plan.threads:
        schedule.parallel(outer)


def _schedule_flat(schedule: Schedule, block: Any, plan: LoopPlan) -> None:
    """Turn a block that reads and writes equal indices into one long loop over all axes."""
    loops = schedule.get_loops(block)
    extents = [int(schedule.get(loop).extent) for loop in loops]
    flat = schedule.fuse(*loops)
    if plan.threads:
        outer, _ = schedule.split(flat, [plan_parts(extents), None])
        schedule.parallel(outer)


def _schedule_columns(schedule: Schedule, block: Any, plan: LoopPlan, lanes: int) -> None:
    """Schedule sums whose terms are apart in memory: neighbouring sums are added up together."""
    spatial, reduced = iterator_positions(schedule, block)
    loops = schedule.get_loops(block)
    outer, sums = ([loops[number] for number in places] for places in (spatial, reduced))
    outer[-1], last = split_evenly(schedule, outer[-1], plan.columns * lanes, lanes)
    schedule.reorder(*outer, *sums, last)
    _parallelize(schedule, outer, plan)
    schedule.decompose_reduction(block, sums[0])


def _inline(schedule: Schedule, root: Any) -> None:
    """Compute element-wise blocks where their values are used, unless this repeats much work."""
    for block in schedule.get_child_blocks(root):
        consumers = schedule.get_consumers(block)
        if iterator_positions(schedule, block)[1] or not consumers:
            continue
        # A block that two others read is computed once, since exponentials cost more than memory
        # accesses. Parts of a tensor that are joined in another order are no reason for a copy.
        if len(consumers) > 1 and not all(map(_only_moves, map(schedule.get, [block, *consumers]))):
            continue
        repeated = iteration_count(schedule, consumers[0]) > iteration_count(schedule, block)
        if repeated and is_expensive(schedule.get(block)):
            continue
        try:
            schedule.compute_inline(block)
        except tvm.s_tir.schedule.ScheduleError:
            continue

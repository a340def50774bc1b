"""Schedules of fused functions of a network: one pass over rows where that is possible.

A softmax or a normalisation reads each row several times: for its maximum, its sum, its values.
Scheduled block by block every pass goes through memory and wakes the threads anew. Here blocks
whose leading axes agree are computed row by row in one parallel loop, so that a row stays in L1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs

from chameleon_tvm.quick_tvm import Schedule, tirx, tvm
from chameleon_tvm.spaces.loops.lowered import LANES
from chameleon_tvm.spaces.loops.trees import structural_equal, structural_map, uses, walk

_COSTLY = ("exp", "log", "tanh", "erf", "pow", "sqrt", "sin", "cos", "atan", "sigmoid")
"""Parts of the names of functions that take many times as long as reading a number does."""


COSTLY = 8
"""Simple operations in the time of an elementary function, both in vectors."""
WORTH_THREADS = 16_384
"""Operations on elements below which waking the other threads, some microseconds, costs more than
they save."""


@attrs.frozen(kw_only=True)
class LoopPlan:
    """How the loops of a function are run.

    Attributes:
        rows: whether blocks that share their leading axes become one pass over these.
        threads: whether outer loops are dealt to all threads.
        block: edge of the square tiles in which numbers change places between axes, in elements;
            1 for none.
        columns: vectors of neighbouring sums that are added up together where a sum does not run
            along memory.
    """

    rows: bool = True
    threads: bool = True
    block: int = 16
    columns: int = 4


def scheduled(function: Any, plan: LoopPlan, lanes: int) -> Any:
    """A function whose blocks are scheduled for several threads and, once they are loops, vectors.

    Args:
        function: a ``PrimFunc`` of TVM's blocks with constant extents.
        plan: how.
        lanes: float32 elements of a vector register.

    Returns:
        What ``loops_of`` turns into loops over arrays.

    Raises:
        tvm.error.InternalError, ScheduleError: TVM refuses a step; the function is of no such
            form.
    """
    schedule = Schedule(tvm.IRModule({"main": function}))
    root = schedule.get_sblock("root")
    _inline(schedule, root)
    blocks = list(schedule.get_child_blocks(root))
    made = _by_rows(schedule, plan, lanes) if plan.rows and len(blocks) > 1 else None
    if made is None:
        made = schedule
        for block in blocks:
            _nest(made, block, plan, lanes)
    attributes = {**dict(function.attrs or {}), LANES: lanes}
    return made.mod["main"].with_attrs(attributes)


def default_plan(function: Any) -> LoopPlan:
    """What is expected to be best without measuring: threads where they have enough to do."""
    schedule = Schedule(tvm.IRModule({"main": function}))
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    work = sum(
        _size(schedule, block) * (COSTLY if _is_costly(schedule.get(block)) else 1)
        for block in blocks
    )
    return LoopPlan(threads=work >= WORTH_THREADS)


# -- one pass over rows ---------------------------------------------------------------------


def _by_rows(schedule: Schedule, plan: LoopPlan, lanes: int) -> Schedule | None:
    """All blocks in one loop over the leading axes that they share; None where they share none."""
    made = schedule.copy()
    *before, last = made.get_child_blocks(made.get_sblock("root"))
    if any(not made.get_consumers(block) for block in before) or _kinds(made, last)[1]:
        return None  # several outputs, or a sum at the end
    blocks = (*before, last)
    extents = [_spatial_extents(made, block) for block in blocks]
    summed = [block for block in blocks if _kinds(made, block)[1]]
    along = [_sums_along_memory(made, block) for block in summed]
    loops = made.get_loops(last)
    if all(along):
        shared = 0
        while all(len(one) > shared for one in extents) and len({e[shared] for e in extents}) == 1:
            shared += 1
        shared = min(shared, len(loops) - 1)
        outer = list(loops[:shared])
    elif not any(along) and all(one == extents[-1] for one in extents):
        part, _ = made.split(loops[-1], [None, _divisor(extents[-1][-1], plan.columns * lanes)])
        outer = [*loops[:-1], part]
    else:
        return None
    if not outer:
        return None
    row = made.fuse(*outer)
    try:
        for block in reversed(before):
            made.compute_at(block, row, preserve_unit_loops=True)
    except tvm.s_tir.schedule.ScheduleError:
        return None
    if plan.threads:
        made.parallel(row)
    for block in summed:
        _split_initial(made, block, columns=not all(along))
    return made


def _split_initial(schedule: Schedule, block: Any, *, columns: bool) -> None:
    """Move a reduction's initial value out of its loops, which come last or before the columns."""
    spatial, reduced = _kinds(schedule, block)
    loops = schedule.get_loops(block)
    sums = loops[len(loops) - len(reduced) :]
    if columns:
        del spatial
        schedule.reorder(*sums, loops[len(loops) - len(reduced) - 1])
    schedule.decompose_reduction(block, sums[0])


def _sums_along_memory(schedule: Schedule, block: Any) -> bool:
    """Whether a block has no sum, or one whose terms are neighbours in memory."""
    spatial, reduced = _kinds(schedule, block)
    behind = reduced == list(range(len(spatial), len(spatial) + len(reduced)))
    return not reduced or (behind and _contiguous(schedule.get(block), reduced))


def _spatial_extents(schedule: Schedule, block: Any) -> list[int]:
    iterators = schedule.get(block).iter_vars
    return [int(iterators[place].dom.extent) for place in _kinds(schedule, block)[0]]


# -- a nest for each block ------------------------------------------------------------------


def _nest(schedule: Schedule, block: Any, plan: LoopPlan, lanes: int) -> None:
    spatial, reduced = _kinds(schedule, block)
    loops = schedule.get_loops(block)
    if not spatial or len(loops) != len(spatial) + len(reduced):
        return
    if not reduced:
        _elementwise(schedule, block, plan)
    elif _sums_along_memory(schedule, block):
        outer = schedule.fuse(*loops[: len(spatial)])
        if plan.threads:
            schedule.parallel(outer)
        schedule.decompose_reduction(block, loops[len(spatial)])
    else:
        _columns(schedule, block, plan, lanes)


def _elementwise(schedule: Schedule, block: Any, plan: LoopPlan) -> None:
    loops = schedule.get_loops(block)
    if _same_places(schedule.get(block)):
        # Read as written: one long loop, whatever the axes are.
        flat = schedule.fuse(*loops)
        if plan.threads:
            outer, _ = schedule.split(flat, [plan_parts(int(schedule.get(flat).extent)), None])
            schedule.parallel(outer)
        return
    ways = _interleaved(schedule.get(block))
    if ways > 1 and len(loops) > 1:
        # LLVM interleaves vectors of several sources where ours would gather lanes one by one.
        schedule.unroll(schedule.split(loops[-1], [None, ways])[1])
        outer = schedule.fuse(*loops[:-1])
        if plan.threads:
            schedule.parallel(outer)
        return
    other = _other_axis(schedule.get(block))
    if other is not None and plan.block > 1:
        edges = [
            _divisor(int(schedule.get(loops[place]).extent), plan.block)
            for place in (other, len(loops) - 1)
        ]
        if min(edges) > 1:
            outer_a, inner_a = schedule.split(loops[other], [None, edges[0]])
            outer_b, inner_b = schedule.split(loops[-1], [None, edges[1]])
            rest = [loops[place] for place in range(len(loops) - 1) if place != other]
            schedule.reorder(*rest, outer_a, outer_b, inner_a, inner_b)
            loops = [*rest, outer_a, outer_b, inner_a, inner_b]
            outer = schedule.fuse(*loops[:-2])
            if plan.threads:
                schedule.parallel(outer)
            return
    if len(loops) == 1:
        return
    outer = schedule.fuse(*loops[:-1])
    if plan.threads:
        schedule.parallel(outer)


def _columns(schedule: Schedule, block: Any, plan: LoopPlan, lanes: int) -> None:
    """Sums whose terms are apart in memory: neighbouring sums are added up together."""
    spatial, reduced = _kinds(schedule, block)
    loops = schedule.get_loops(block)
    outer, sums = ([loops[place] for place in places] for places in (spatial, reduced))
    extent = int(schedule.get(outer[-1]).extent)
    width = _divisor(extent, plan.columns * lanes)
    if 1 < width < extent:
        outer[-1], inner = schedule.split(outer[-1], [None, width])
        schedule.reorder(*outer, *sums, inner)
        fused = schedule.fuse(*outer)
    elif len(outer) > 1 and width == extent:
        schedule.reorder(*outer[:-1], *sums, outer[-1])
        fused = schedule.fuse(*outer[:-1])
    else:
        schedule.reorder(*outer, *sums)
        fused = schedule.fuse(*outer)
    if plan.threads:
        schedule.parallel(fused)
    schedule.decompose_reduction(block, sums[0])


def plan_parts(size: int, most: int = 64) -> int:
    """Into how many equal parts a long loop is split for the threads."""
    return next((parts for parts in range(min(most, size), 0, -1) if size % parts == 0), 1)


# -- what blocks are ------------------------------------------------------------------------


def _inline(schedule: Schedule, root: Any) -> None:
    """Compute element-wise blocks where their values are used, unless that repeats much work."""
    for block in schedule.get_child_blocks(root):
        consumers = schedule.get_consumers(block)
        # What two others read is computed once: exponentials cost more than memory does.
        if _kinds(schedule, block)[1] or len(consumers) != 1:
            continue
        repeated = _size(schedule, consumers[0]) > _size(schedule, block)
        if repeated and _is_costly(schedule.get(block)):
            continue
        try:
            schedule.compute_inline(block)
        except tvm.s_tir.schedule.ScheduleError:
            continue


def _is_costly(block: Any) -> bool:
    found = False

    def visit(node: Any) -> None:
        nonlocal found
        if isinstance(node, tvm.ir.Call):
            found = found or any(part in str(node.op) for part in _COSTLY)
        found = found or isinstance(node, tirx.Div)

    walk(block.body, visit)
    return found


def _kinds(schedule: Schedule, block: Any) -> tuple[list[int], list[int]]:
    """Places of a block's spatial and of its reduced iterators."""
    iterators = schedule.get(block).iter_vars
    spatial = [
        place for place, one in enumerate(iterators) if one.iter_type == tirx.IterVar.DataPar
    ]
    return spatial, [place for place in range(len(iterators)) if place not in spatial]


def _same_places(block: Any) -> bool:
    """Whether every number is computed from the numbers at its own place, and from constants."""
    [write] = block.writes
    wanted = [one.min for one in write.region]
    if _has_gaps(block) or _computes_with_places(block):
        return False
    extents = [int(extent) for extent in write.source.shape]
    return all(
        (
            [int(extent) for extent in read.source.shape] == extents
            and all(
                structural_equal(one.min, other)
                for one, other in zip(read.region, wanted, strict=True)
            )
        )
        or math.prod(int(extent) for extent in read.source.shape) == 1
        for read in block.reads
    )


def _interleaved(block: Any) -> int:
    """How many sources neighbouring elements come from by turns, as in a channel shuffle."""
    last = block.iter_vars[-1]
    extent = int(last.dom.extent)
    found: list[int] = []

    def visit(node: Any) -> None:
        if isinstance(node, tirx.FloorMod) and node.a.same_as(last.var):
            ways = int(getattr(node.b, "value", 0))
            if 1 < ways < extent and extent % ways == 0:
                found.append(ways)

    walk(block.body, visit)
    return min(found, default=1)


def _has_gaps(block: Any) -> bool:
    """Whether a block reads or writes part of a larger array."""
    return any(len(region.source.ty.strides) for region in (*block.reads, *block.writes))


def _computes_with_places(block: Any) -> bool:
    """Whether a block's iterators occur in what it computes, and not just in where it reads."""
    values: list[Any] = []
    walk(block.body, lambda node: values.append(node.value) if _is_store(node) else None)
    placeless = [
        structural_map(
            value, [(tvm.ir.TensorLoad, lambda load: tirx.FloatImm("float32", 0.0).astype(load.ty))]
        )
        for value in values
    ]
    return any(uses(value, one.var) for value in placeless for one in block.iter_vars)


def _is_store(node: Any) -> bool:
    return isinstance(node, tirx.BufferStore)


def _other_axis(block: Any) -> int | None:
    """The axis along which a block reads neighbours where it writes them along the last one."""
    variables = [one.var for one in block.iter_vars]
    for read in block.reads:
        if not len(read.region):
            continue
        used = tirx.analysis.undefined_vars(read.region[-1].min)
        places = [
            place
            for place, variable in enumerate(variables)
            if any(variable.same_as(one) for one in used)
        ]
        if len(places) == 1 and places[0] != len(variables) - 1:
            return places[0]
    return None


def _contiguous(block: Any, reduced: Sequence[int]) -> bool:
    """Whether what a reduction reads has neighbours along a reduced axis."""
    variables = [block.iter_vars[place].var for place in reduced]
    lasts = [region.region[-1].min for region in block.reads if len(region.region)]
    return any(
        variable.same_as(used)
        for last in lasts
        for used in tirx.analysis.undefined_vars(last)
        for variable in variables
    )


def _size(schedule: Schedule, block: Any) -> int:
    return math.prod(int(one.dom.extent) for one in schedule.get(block).iter_vars)


def _divisor(extent: int, most: int) -> int:
    """The largest divisor of an extent up to some number."""
    return next(size for size in range(min(extent, most), 0, -1) if extent % size == 0)

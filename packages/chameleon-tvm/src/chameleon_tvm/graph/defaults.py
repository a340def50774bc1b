"""Schedules for what is not tuned: parallel over outer loops, vectors along the inner one.

TVM's default for a CPU is the loops as they are written, on one thread.
"""

from __future__ import annotations

import math
from typing import Any

import structlog
from tvm_ffi.structural import structural_walk

from chameleon_tvm.quick_tvm import Schedule, tirx, tvm

log = structlog.get_logger()

OURS = "chameleon.task"
"""Attribute of functions that are scheduled already: the task they were tuned as."""

_LANES = 16
_WORTH_A_THREAD = 2048
"""Elements of an output below which waking the other threads costs more than they save."""


def with_default_schedules(module: Any) -> Any:
    """The module with every unscheduled function of loops scheduled for a CPU.

    Args:
        module: an ``IRModule`` after ``FuseTIR``.
    """
    for variable, function in list(module.functions_items()):
        if not isinstance(function, tirx.PrimFunc) or OURS in (function.attrs or {}):
            continue
        scheduled = _scheduled(function)
        if scheduled is not None:
            module.update_func(variable, scheduled)
    return module


def _scheduled(function: Any) -> Any | None:
    schedule = Schedule(tvm.IRModule({"main": function}))
    try:
        root = schedule.get_sblock("root")
        _inline(schedule, root)
        for block in schedule.get_child_blocks(root):
            _schedule_block(schedule, block)
    except Exception as error:  # noqa: BLE001 - whatever a schedule refuses is left as it is
        log.debug("default_schedule_refused", problem=str(error).splitlines()[-1])
        return None
    return schedule.mod["main"].with_attrs(dict(function.attrs))


def _inline(schedule: Schedule, root: Any) -> None:
    """Compute element-wise blocks where their values are used."""
    for block in schedule.get_child_blocks(root):
        # What two others read is computed once: exponentials cost more than memory does.
        if _kinds(schedule, block)[1] or len(schedule.get_consumers(block)) != 1:
            continue
        try:
            schedule.compute_inline(block)
        except tvm.s_tir.schedule.ScheduleError:
            continue


def _kinds(schedule: Schedule, block: Any) -> tuple[list[int], list[int]]:
    """Places of a block's spatial and of its reduced iterators."""
    iterators = schedule.get(block).iter_vars
    spatial = [
        place for place, one in enumerate(iterators) if one.iter_type == tirx.IterVar.DataPar
    ]
    return spatial, [place for place in range(len(iterators)) if place not in spatial]


def _schedule_block(schedule: Schedule, block: Any) -> None:
    spatial, reduced = _kinds(schedule, block)
    loops = schedule.get_loops(block)
    if not spatial or len(loops) != len(spatial) + len(reduced):
        return
    if not reduced:
        _schedule_elementwise(schedule, block)
    elif reduced == list(range(len(spatial), len(loops))) and _contiguous(
        schedule.get(block), reduced
    ):
        _schedule_rows(schedule, block, loops[reduced[-1]])
    else:
        _schedule_columns(schedule, block)


def _schedule_elementwise(schedule: Schedule, block: Any) -> None:
    size = _size(schedule, block)
    loops = schedule.get_loops(block)
    ways, gaps = _interleaved(schedule.get(block)), _has_gaps(schedule.get(block))
    if len(loops) > 1 and (ways > 1 or gaps):
        # Rows are left to LLVM, which interleaves vectors of several sources where ours would
        # gather their lanes one by one, and knows what to do with the end of a row.
        row = loops.pop()
        if ways > 1:
            schedule.unroll(schedule.split(row, [None, ways])[1])
        fused = schedule.fuse(*loops)
    else:
        lanes = _lanes(size)
        fused = schedule.fuse(*loops)
        if lanes > 1:
            fused, vector = schedule.split(fused, [None, lanes])
            schedule.vectorize(vector)
    if size >= _WORTH_A_THREAD:
        schedule.parallel(fused)


def _schedule_rows(schedule: Schedule, block: Any, last: Any) -> None:
    """A reduction of neighbouring elements: lanes have partial results of their own."""
    extent = int(schedule.get(last).extent)
    lanes = _lanes(extent)
    if lanes in {1, extent}:
        _schedule_columns(schedule, block, vectors=False)
        return
    _, inner = schedule.split(last, [None, lanes])
    places = len(_kinds(schedule, block)[0])
    partial = schedule.rfactor(inner, factor_axis=places)
    loops = schedule.get_loops(partial)
    _schedule_nest(schedule, partial, [*loops[:places], loops[-1]], loops[places:-1])
    # The order of its iterators is no longer that of its loops.
    loops = schedule.get_loops(block)
    _schedule_nest(schedule, block, loops[:places], loops[places:], vectors=False)


def _schedule_columns(schedule: Schedule, block: Any, *, vectors: bool = True) -> None:
    """A reduction along which neighbouring outputs are in neighbouring lanes."""
    spatial, reduced = _kinds(schedule, block)
    loops = schedule.get_loops(block)
    outer, sums = ([loops[place] for place in places] for places in (spatial, reduced))
    _schedule_nest(schedule, block, outer, sums, vectors=vectors)


def _schedule_nest(
    schedule: Schedule, block: Any, outer: list[Any], sums: list[Any], *, vectors: bool = True
) -> None:
    """Outer loops on threads, reductions inside, the innermost outer loop in lanes."""
    size = _size(schedule, block)
    lanes = _lanes(int(schedule.get(outer[-1]).extent)) if vectors else 1
    vector = None
    if lanes > 1:
        outer[-1], vector = schedule.split(outer[-1], [None, lanes])
    schedule.reorder(*outer, *sums, *([] if vector is None else [vector]))
    fused = schedule.fuse(*outer)
    if vector is not None:
        schedule.vectorize(vector)
    if size >= _WORTH_A_THREAD:
        schedule.parallel(fused)
    schedule.decompose_reduction(block, sums[0])


def _interleaved(block: Any) -> int:
    """How many sources neighbouring elements come from by turns, as in a channel shuffle."""
    last = block.iter_vars[-1]
    extent = int(last.dom.extent)
    found: list[int] = []

    def divided(modulo: Any) -> None:
        ways = getattr(modulo.b, "value", 0)
        if modulo.a.same_as(last.var) and 1 < ways < extent and extent % ways == 0:
            found.append(int(ways))

    structural_walk(block.body, (tirx.FloorMod, divided))
    return min(found, default=1)


def _has_gaps(block: Any) -> bool:
    """Whether a block reads or writes part of a larger tensor."""
    return any(len(region.source.ty.strides) for region in (*block.reads, *block.writes))


def _contiguous(block: Any, reduced: list[int]) -> bool:
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


def _lanes(extent: int) -> int:
    """The widest vector that divides an extent; 1 where none does."""
    return next((lanes for lanes in (_LANES, 8, 4) if extent % lanes == 0), 1)

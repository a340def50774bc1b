"""Applies a configuration of a CUDA template to the operator's TensorIR function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import attrs

from chameleon_tvm._quick_tvm import Schedule, tirx
from chameleon_tvm._spaces.cuda.nest import THREAD, Nest


@attrs.frozen(kw_only=True)
class Blocks:
    """The parts of a TensorIR function that a CUDA schedule transforms.

    Attributes:
        anchor: Name of the block that computes the sums.
        loops: Names of the anchor's loops in the function's order. Loops that are no axes of the
            nest repeat it, such as the loop over images.
        groups: Number of groups of channels, by which the loop ``f`` is split if there are several.
        inlined: Names of blocks that are computed where their values are read, such as padding.
        epilogue: Name of the block that turns sums into outputs; None if the sums are the outputs.
    """

    anchor: str
    loops: tuple[str, ...]
    groups: int = 1
    inlined: tuple[str, ...] = ()
    epilogue: str | None = None


def schedule_nest(
    function: tirx.PrimFunc, nest: Nest, blocks: Blocks, values: Mapping[str, Any]
) -> tirx.PrimFunc:
    """The function of a configuration, with its loops bound to a GPU's blocks and threads.

    The anchor block must read its inputs in the order of ``nest.operands``.
    """
    schedule = Schedule(function)
    anchor = schedule.get_sblock(blocks.anchor)
    if blocks.epilogue is None:
        output = schedule.cache_write(anchor, 0, "local")
    else:
        output = schedule.get_sblock(blocks.epilogue)
        schedule.set_scope(anchor, 0, "local")
    shared_copies = [
        schedule.cache_read(anchor, number, "shared") for number in range(len(nest.operands))
    ]
    for name in blocks.inlined:
        schedule.compute_inline(schedule.get_sblock(name))
    grid, thread, steps = _tile(schedule, anchor, nest, blocks, values)
    schedule.reverse_compute_at(output, thread, preserve_unit_loops=True)
    threads = prod(int(values[axis.knob][THREAD]) for axis in nest.outputs)
    for block, operand in zip(shared_copies, nest.operands, strict=True):
        if operand.transposed:
            schedule.transform_layout(block, ("write", 0), lambda *at: (*at[:-2], at[-1], at[-2]))
        schedule.compute_at(block, steps[-1], preserve_unit_loops=True)
        own = schedule.get_loops(block)[-len(operand.dimensions) :]
        _cooperative_fetch(schedule, own, threads, int(values.get(operand.knob, 1)))
    schedule.decompose_reduction(anchor, steps[0])
    unroll(schedule, grid, values)
    return schedule.mod["main"]


def unroll(schedule: Schedule, grid: Any, values: Mapping[str, Any]) -> None:
    """Let TVM unroll the loops of a block of threads as far as the configuration allows."""
    if values["auto_unroll_max_step"]:
        schedule.annotate(grid, "pragma_auto_unroll_max_step", values["auto_unroll_max_step"])
        schedule.annotate(grid, "pragma_unroll_explicit", values["unroll_explicit"])


def _tile(
    schedule: Schedule, anchor: Any, nest: Nest, blocks: Blocks, values: Mapping[str, Any]
) -> tuple[Any, Any, list[Any]]:
    """Split, order and bind the anchor's loops; return the loops of grid, threads and steps."""
    loops = dict(zip(blocks.loops, schedule.get_loops(anchor), strict=True))
    outputs = [axis.name for axis in nest.outputs]
    reductions = [axis.name for axis in nest.reductions]
    copies = [loop for name, loop in loops.items() if name not in {*outputs, *reductions}]
    if blocks.groups > 1:
        group, loops["f"] = schedule.split(loops["f"], [blocks.groups, None])
        copies.append(group)
    tiles = [schedule.split(loops[a.name], list(values[a.knob])) for a in nest.outputs]
    sums = [
        schedule.split(loops[a.name], [1, a.extent] if a.untiled else list(values[a.knob]))
        for a in nest.reductions
    ]
    parts = [list(part) for part in zip(*tiles, strict=True)]
    steps, inner = ([pair[at] for pair in sums] for at in (0, 1))
    schedule.reorder(*copies, *parts[0], *parts[1], *parts[2], *steps, *inner, *parts[3])
    grid = schedule.fuse(*copies, *parts[0])
    virtual, thread = (schedule.fuse(*part) for part in parts[1:3])
    schedule.bind(grid, "blockIdx.x")
    schedule.bind(virtual, "vthread.x")
    schedule.bind(thread, "threadIdx.x")
    return grid, thread, steps


def _cooperative_fetch(schedule: Schedule, loops: Sequence[Any], threads: int, width: int) -> None:
    """Share a copy among the threads; neighbouring threads copy neighbouring elements."""
    fused = schedule.fuse(*loops)
    if width > 1:
        fused, vector = schedule.split(fused, [None, width])
        schedule.vectorize(vector)
    _, thread = schedule.split(fused, [None, threads])
    schedule.bind(thread, "threadIdx.x")

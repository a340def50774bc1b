"""Traces replayed on symbols: names for sampling instructions, and the loop nest they tile."""

from __future__ import annotations

from typing import Any

from chameleon_tvm.quick_tvm import Schedule
from chameleon_tvm.spaces.sketch.nest import Nest, accesses_of
from chameleon_tvm.spaces.sketch.shaping import (
    SHAPING,
    SamplingInstruction,
    TraceReplay,
    block_names,
)

UNROLL = ("meta_schedule.unroll_explicit", "meta_schedule.unroll_implicit")


def replay(base: Schedule, sketch: Schedule) -> tuple[list[SamplingInstruction], Nest | None]:
    """What a sketch samples, and the nest of its anchor block.

    Args:
        base: the unscheduled module's schedule.
        sketch: one of the generator's schedules.

    Returns:
        The sampling instructions in order, and the nest of the multi-level tiled block with the
        most iterations: None where no block is tiled that way.
    """
    state = TraceReplay(base=base)
    decisions = {hash(i): decision for i, decision in sketch.trace.decisions.items()}
    consumers = _uses(sketch)
    for instruction in sketch.trace.insts:
        _step(state, instruction, decisions, consumers)
    return state.samples, _nest(state)


def _step(
    state: TraceReplay, instruction: Any, decisions: dict[int, Any], uses: dict[int, list[Any]]
) -> None:
    kind = str(instruction.kind.name)
    if hash(instruction) in decisions:
        _sample(state, instruction, decisions[hash(instruction)], uses)
    elif kind in SHAPING:
        SHAPING[kind](state, instruction)


def _sample(
    state: TraceReplay, instruction: Any, decision: Any, uses: dict[int, list[Any]]
) -> None:
    kind = str(instruction.kind.name)
    subject, block, extent, loops = kind, "", 0, 0
    if kind == "SamplePerfectTile":
        loop = hash(instruction.inputs[0])
        block = state.loop_block.get(loop, "")
        for factor in decision:
            extent = (extent or 1) * int(factor)
        parts = state.loops.get(loop, ())
        axis = "_".join(part.axis.name for part in parts) or "loop"
        subject = f"tile_{axis}"
    elif kind == "SampleCategorical":
        subject, block = _category(state, instruction, uses)
    elif kind == "SampleComputeLocation":
        block = state.block_name(instruction.inputs[0])
        subject = f"compute_location_{block}"
        loops = _deepest_location(state)
    subject = _unique(state, subject, block)
    for index, output in enumerate(instruction.outputs):
        # Tiles of a loop of one iteration are all 1: no knob decides them.
        state.factors[hash(output)] = (None if extent == 1 else subject, index)
    state.samples.append(
        SamplingInstruction(
            instruction=instruction,
            kind=kind,
            subject=subject,
            block=block,
            extent=extent,
            loops=loops,
            decision=decision,
        )
    )


def _category(state: TraceReplay, instruction: Any, uses: dict[int, list[Any]]) -> tuple[str, str]:
    """A name for a categorical choice: the annotation it goes into, or the loop it splits."""
    for use in uses.get(hash(instruction.outputs[0]), []):
        kind = str(use.kind.name)
        if kind == "Annotate":
            block = state.block_name(use.inputs[0])
            if str(use.attrs[0]) in UNROLL:
                return "unroll", block
            return f"{str(use.attrs[0]).removeprefix('meta_schedule.')}_{block}", block
        if kind == "Split":
            block = state.loop_block.get(hash(use.inputs[0]), "")
            return f"threads_{block}", block
    return "choice", ""


def _unique(state: TraceReplay, subject: str, block: str) -> str:
    taken = {sample.subject for sample in state.samples}
    if subject in taken and block:
        subject = f"{subject}_{block}"
    number, name = 2, subject
    while name in taken:
        name, number = f"{subject}_{number}", number + 1
    return name


def _deepest_location(state: TraceReplay) -> int:
    """Loops of the (last) anchor down to the end of its outermost reduction loops.

    Further in, a producer would be computed again for every step of the reduction.
    """
    nest = _nest(state)
    if nest is not None:
        return nest.position_after_first_reductions()
    return max((len(order) for order in state.order.values()), default=8)


def _nest(state: TraceReplay) -> Nest | None:
    anchors = [name for name in state.anchors if name in state.order]
    if not anchors:
        return None

    def iterations(name: str) -> int:
        total = 1
        for axis in state.axes[name]:
            total *= axis.extent
        return total

    name = max(anchors, key=iterations)
    order = state.order[name]
    try:
        accesses = accesses_of(state.base, state.base.get_sblock(name))
    except NotImplementedError:  # An index loads from memory: no footprint can be computed.
        return None
    subjects = [sample.subject for sample in state.samples]
    return Nest(
        block=name,
        axes=state.axes[name],
        loops=tuple(state.loops[loop] for loop in order),
        threads={p: state.threads[loop] for p, loop in enumerate(order) if loop in state.threads},
        accesses=accesses,
        staged_at=state.staged_at.get(name),
        unroll="unroll" if "unroll" in subjects else None,
        locations=_locations(state, {access.name for access in accesses}),
        shared_at=state.shared_at.get(name, {}),
        max_parallel=state.limits.get("meta_schedule.parallel"),
        max_vector=state.limits.get("meta_schedule.vectorize"),
    )


def _locations(state: TraceReplay, buffers: set[str]) -> tuple[str, ...]:
    """Compute-location knobs of the blocks that write one of the anchor's inputs."""
    found = []
    for sample in state.samples:
        if sample.kind == "SampleComputeLocation" and sample.block in block_names(state.base):
            block = state.base.get(state.base.get_sblock(sample.block))
            if {str(region.source.name) for region in block.writes} & buffers:
                found.append(sample.subject)
    return tuple(found)


def _uses(sketch: Schedule) -> dict[int, list[Any]]:
    """Random variable to the instructions that take it as an input."""
    found: dict[int, list[Any]] = {}
    for instruction in sketch.trace.insts:
        for value in instruction.inputs:
            try:
                found.setdefault(hash(value), []).append(instruction)
            except TypeError:
                continue
    return found

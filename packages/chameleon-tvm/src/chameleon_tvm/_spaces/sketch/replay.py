"""Replays traces of MetaSchedule with knobs in place of the numbers that the traces sampled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs

from chameleon_tvm._quick_tvm import Schedule
from chameleon_tvm._spaces.sketch.nest import Axis, Nest, Part, accesses_of, axes_of

TILING = "meta_schedule.tiling_structure"


@attrs.frozen(kw_only=True, eq=False)
class SamplingInstruction:
    """A sampling instruction of a trace.

    Attributes:
        instruction: TVM's object, which is the key of its decision.
        kind: TVM's name of the kind of instruction, such as ``SamplePerfectTile``.
        subject: A name for the choice that the instruction makes, such as ``tile_h`` or ``unroll``.
        block: Name of the block that the choice is for.
        extent: Extent of the loop that is tiled; 0 for other kinds.
        loops: For a compute location, the number of outer loops that can be chosen.
        decision: The decision that TVM's generator sampled.
    """

    instruction: Any
    kind: str
    subject: str
    block: str
    extent: int
    loops: int
    decision: Any


@attrs.define(eq=False)
class TraceReplay:
    """The state of the replay of a trace: the loops of each block so far.

    Integer keys are the ``hash`` of a block, loop or factor, TVM's random variables.
    """

    base: Schedule
    blocks: dict[int, str] = attrs.field(factory=dict)
    loops: dict[int, tuple[Part, ...]] = attrs.field(factory=dict)
    loop_block: dict[int, str] = attrs.field(factory=dict)
    order: dict[str, list[int]] = attrs.field(factory=dict)
    factors: dict[int, tuple[str | None, int]] = attrs.field(factory=dict)
    axes: dict[str, tuple[Axis, ...]] = attrs.field(factory=dict)
    threads: dict[int, str] = attrs.field(factory=dict)
    anchors: list[str] = attrs.field(factory=list)
    staged: dict[str, str] = attrs.field(factory=dict)
    staged_at: dict[str, int] = attrs.field(factory=dict)
    copies: dict[str, tuple[str, int]] = attrs.field(factory=dict)
    shared_at: dict[str, dict[str, int]] = attrs.field(factory=dict)
    limits: dict[str, int] = attrs.field(factory=dict)
    samples: list[SamplingInstruction] = attrs.field(factory=list)

    def block_name(self, variable: Any) -> str:
        """The name of the block that a random variable represents."""
        return self.blocks.get(hash(variable), "block")

    def get_loops(self, instruction: Any) -> None:
        """Record a block's loops; those of an unscheduled block become parts of its nest."""
        name = self.block_name(instruction.inputs[0])
        outputs = [hash(output) for output in instruction.outputs]
        for output in outputs:
            self.loop_block[output] = name
        if name in self.axes or name not in block_names(self.base):
            return
        axes = axes_of(self.base, self.base.get_sblock(name))
        if len(axes) != len(outputs):
            return
        self.axes[name] = axes
        self.order[name] = outputs
        for output, axis in zip(outputs, axes, strict=True):
            self.loops[output] = (Part(axis=axis, knob=None, index=0, extent=axis.extent),)

    def split(self, instruction: Any) -> None:
        """Replace a loop by one loop per factor."""
        loop, *factors = instruction.inputs
        outputs = [hash(output) for output in instruction.outputs]
        name = self.loop_block.get(hash(loop), "")
        for output in outputs:
            self.loop_block[output] = name
        parts = self.loops.get(hash(loop))
        if parts is None or len(parts) != 1 or any(hash(f) not in self.factors for f in factors):
            self.order.pop(name, None)
            return
        for output, factor in zip(outputs, factors, strict=True):
            knob, index = self.factors[hash(factor)]
            self.loops[output] = (Part(axis=parts[0].axis, knob=knob, index=index),)
        self._replace(name, [hash(loop)], outputs)

    def fuse(self, instruction: Any) -> None:
        """Fuse several loops into one loop that has all their parts."""
        inputs = [hash(loop) for loop in instruction.inputs]
        output = hash(instruction.outputs[0])
        name = self.loop_block.get(inputs[0], "")
        self.loop_block[output] = name
        if all(loop in self.loops for loop in inputs):
            self.loops[output] = tuple(part for loop in inputs for part in self.loops[loop])
            self._replace(name, inputs, [output])

    def reorder(self, instruction: Any) -> None:
        """Change the order of some loops of a block; other loops keep their positions."""
        inputs = [hash(loop) for loop in instruction.inputs]
        name = self.loop_block.get(inputs[0], "")
        order = self.order.get(name)
        if order is None:
            return
        positions = sorted(order.index(loop) for loop in inputs if loop in order)
        if len(positions) != len(inputs):
            self.order.pop(name)
            return
        for position, loop in zip(positions, inputs, strict=True):
            order[position] = loop

    def _replace(self, name: str, old: list[int], new: list[int]) -> None:
        order = self.order.get(name)
        if order is not None and old[0] in order:
            start = order.index(old[0])
            order[start : start + len(old)] = new

    def position(self, loop: Any) -> tuple[str, int] | None:
        """The block of a loop and the loop's position in the block's nest, or None."""
        name = self.loop_block.get(hash(loop), "")
        order = self.order.get(name, [])
        return (name, order.index(hash(loop))) if hash(loop) in order else None


def _find_block(state: TraceReplay, instruction: Any) -> None:
    state.blocks[hash(instruction.outputs[0])] = str(instruction.attrs[0])


def _bind(state: TraceReplay, instruction: Any) -> None:
    state.threads[hash(instruction.inputs[0])] = str(instruction.attrs[0])


def _annotate(state: TraceReplay, instruction: Any) -> None:
    key = str(instruction.attrs[0])
    if key == TILING:
        state.anchors.append(state.block_name(instruction.inputs[0]))
    elif key.startswith("meta_schedule.") and len(instruction.inputs) > 1:
        try:
            state.limits[key] = int(instruction.inputs[1])
        except (TypeError, ValueError):
            return


def _copy(state: TraceReplay, instruction: Any) -> None:
    written = str(instruction.kind.name) == "CacheWrite"
    source = state.block_name(instruction.inputs[0])
    name = f"{source}_{'output' if written else 'input'}{int(instruction.attrs[0])}"
    state.blocks[hash(instruction.outputs[0])] = name
    if written:
        state.staged[name] = source
    elif str(instruction.attrs[1]).startswith("shared"):
        state.copies[name] = (source, int(instruction.attrs[0]))


def _move(state: TraceReplay, instruction: Any) -> None:
    name = state.block_name(instruction.inputs[0])
    location = state.position(instruction.inputs[1])
    if location is None:
        return
    anchor, position = location
    if state.staged.get(name) == anchor:
        state.staged_at[anchor] = position
    elif name in state.copies:
        state.shared_at.setdefault(anchor, {})[str(state.copies[name][1])] = position


HANDLERS: dict[str, Callable[[TraceReplay, Any], None]] = {
    "GetSBlock": _find_block,
    "GetLoops": TraceReplay.get_loops,
    "Split": TraceReplay.split,
    "Fuse": TraceReplay.fuse,
    "Reorder": TraceReplay.reorder,
    "Bind": _bind,
    "Annotate": _annotate,
    "CacheWrite": _copy,
    "CacheRead": _copy,
    "ReverseComputeAt": _move,
    "ComputeAt": _move,
}
"""The instructions that change a nest, with the functions that replay them. Other instructions are
skipped."""


def block_names(schedule: Schedule) -> set[str]:
    """Names of all blocks of an unscheduled function."""
    root = schedule.get_sblock("root")
    return {str(schedule.get(block).name_hint) for block in schedule.get_child_blocks(root)}


UNROLL = ("meta_schedule.unroll_explicit", "meta_schedule.unroll_implicit")


def replay(base: Schedule, sketch: Schedule) -> tuple[list[SamplingInstruction], Nest | None]:
    """Read a sketch: its sampling instructions, and its largest tiled nest, if any."""
    state = TraceReplay(base=base)
    decisions = {hash(i): decision for i, decision in sketch.trace.decisions.items()}
    consumers = _uses(sketch)
    for instruction in sketch.trace.insts:
        kind = str(instruction.kind.name)
        if hash(instruction) in decisions:
            _sample(state, instruction, decisions[hash(instruction)], consumers)
        elif kind in HANDLERS:
            HANDLERS[kind](state, instruction)
    return state.samples, _nest(state)


def _sample(
    state: TraceReplay, instruction: Any, decision: Any, uses: dict[int, list[Any]]
) -> None:
    kind = str(instruction.kind.name)
    subject, block, extent, loops = kind, "", 0, 0
    if kind == "SamplePerfectTile":
        loop = hash(instruction.inputs[0])
        block = state.loop_block.get(loop, "")
        extent = math.prod(int(factor) for factor in decision)
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
        # All tile sizes of a loop of one iteration are 1, so no knob decides them.
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
    """A name for a categorical choice: the annotation that it sets, or the loop that it splits."""
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
    subjects = {sample.subject for sample in state.samples}
    if subject in subjects and block:
        subject = f"{subject}_{block}"
    number, name = 2, subject
    while name in subjects:
        name, number = f"{subject}_{number}", number + 1
    return name


def _deepest_location(state: TraceReplay) -> int:
    """Number of loops of the anchor down to the end of its outermost reduction loops.

    Further inside, a producer would be computed again for every step of the reduction.
    """
    nest = _nest(state)
    if nest is not None:
        return nest.position_after_first_reductions()
    return max((len(order) for order in state.order.values()), default=8)


def _nest(state: TraceReplay) -> Nest | None:
    anchors = [name for name in state.anchors if name in state.order]
    if not anchors:
        return None
    name = max(anchors, key=lambda anchor: math.prod(axis.extent for axis in state.axes[anchor]))
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
    """Names of the compute-location knobs of blocks that write an input of the anchor."""
    subjects = []
    for sample in state.samples:
        if sample.kind == "SampleComputeLocation" and sample.block in block_names(state.base):
            block = state.base.get(state.base.get_sblock(sample.block))
            if {str(region.source.name) for region in block.writes} & buffers:
                subjects.append(sample.subject)
    return tuple(subjects)


def _uses(sketch: Schedule) -> dict[int, list[Any]]:
    """For each random variable, the instructions that have it as an input."""
    uses: dict[int, list[Any]] = {}
    for instruction in sketch.trace.insts:
        for value in instruction.inputs:
            try:
                uses.setdefault(hash(value), []).append(instruction)
            except TypeError:
                continue
    return uses

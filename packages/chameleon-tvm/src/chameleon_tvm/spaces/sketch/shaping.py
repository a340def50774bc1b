"""A trace's loops replayed on symbols: which knob's which factor every loop runs over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from chameleon_tvm.quick_tvm import Schedule
from chameleon_tvm.spaces.sketch.nest import Axis, Part, axes_of

TILING = "meta_schedule.tiling_structure"


@attrs.frozen(kw_only=True, eq=False)
class SamplingInstruction:
    """One sampling instruction of a trace.

    Attributes:
        instruction: TVM's object, the key of its decision.
        kind: ``SamplePerfectTile``, ``SampleCategorical``, ``SampleComputeLocation``, or
            another kind of TVM's.
        subject: what it decides about, in the field's terms: ``tile_h``, ``unroll``.
        block: the block it belongs to.
        extent: of the loop that is tiled; 0 for other kinds.
        loops: for compute locations, how many loops of the consumer are worth naming.
        decision: what TVM's generator happened to sample.
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
    """State of one replay, changed by the instructions that shape loops.

    Random variables are keyed by ``hash``, TVM's object identity.
    """

    base: Schedule
    blocks: dict[int, str] = attrs.field(factory=dict)
    loops: dict[int, tuple[Part, ...]] = attrs.field(factory=dict)
    loop_block: dict[int, str] = attrs.field(factory=dict)
    order: dict[str, list[int]] = attrs.field(factory=dict)
    factors: dict[int, tuple[str | None, int]] = attrs.field(factory=dict)
    choices: dict[int, int] = attrs.field(factory=dict)
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
        """The name of the block a random variable stands for."""
        return self.blocks.get(hash(variable), "block")

    def get_loops(self, instruction: Any) -> None:
        """Loops of a block; those of an unscheduled one become parts of its nest."""
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
        """One loop into as many as there are factors."""
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
        """Several loops into one of several parts."""
        inputs = [hash(loop) for loop in instruction.inputs]
        output = hash(instruction.outputs[0])
        name = self.loop_block.get(inputs[0], "")
        self.loop_block[output] = name
        if all(loop in self.loops for loop in inputs):
            self.loops[output] = tuple(part for loop in inputs for part in self.loops[loop])
            self._replace(name, inputs, [output])

    def reorder(self, instruction: Any) -> None:
        """Loops of a block in another order, the places of the others unchanged."""
        inputs = [hash(loop) for loop in instruction.inputs]
        name = self.loop_block.get(inputs[0], "")
        order = self.order.get(name)
        if order is None:
            return
        places = sorted(order.index(loop) for loop in inputs if loop in order)
        if len(places) != len(inputs):
            self.order.pop(name)
            return
        for place, loop in zip(places, inputs, strict=True):
            order[place] = loop

    def _replace(self, name: str, old: list[int], new: list[int]) -> None:
        order = self.order.get(name)
        if order is not None and old[0] in order:
            start = order.index(old[0])
            order[start : start + len(old)] = new

    def position(self, loop: Any) -> tuple[str, int] | None:
        """The block of a loop and its place in the nest; None where that is unknown."""
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
    of = state.block_name(instruction.inputs[0])
    name = f"{of}_{'output' if written else 'input'}{int(instruction.attrs[0])}"
    state.blocks[hash(instruction.outputs[0])] = name
    if written:
        state.staged[name] = of
    elif str(instruction.attrs[1]).startswith("shared"):
        state.copies[name] = (of, int(instruction.attrs[0]))


def _move(state: TraceReplay, instruction: Any) -> None:
    name = state.block_name(instruction.inputs[0])
    place = state.position(instruction.inputs[1])
    if place is None:
        return
    anchor, position = place
    if state.staged.get(name) == anchor:
        state.staged_at[anchor] = position
    elif name in state.copies:
        state.shared_at.setdefault(anchor, {})[str(state.copies[name][1])] = position


SHAPING: dict[str, Callable[[TraceReplay, Any], None]] = {
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
"""Instructions that shape a nest; others are skipped."""


def block_names(schedule: Schedule) -> set[str]:
    """Names of all blocks of an unscheduled function."""
    root = schedule.get_sblock("root")
    return {str(schedule.get(block).name_hint) for block in schedule.get_child_blocks(root)}

"""Rewrites transposed convolutions by the polyphase decomposition (Shi et al., arXiv:1609.07009).

With stride s, the outputs s j + r of each remainder r are a convolution with some of the taps. With
few channels, one convolution computes all remainders as channels, which a shuffle puts in order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_tvm.api import SPATIAL, is_channels_last
from numpy.typing import NDArray

from chameleon_networks._graph.constants import array_of, constant_of, per_channel
from chameleon_networks._graph.matching_products import (
    TRANSPOSED_RANKS,
    ConvolutionCall,
    convolution_of,
)
from chameleon_networks._graph.propagate_transposes import ELEMENTWISE
from chameleon_networks._graph.relax_utils import (
    mutate,
    operator_name,
    relax,
    shape_of,
    tvm,
    users_of,
    with_args,
)


def rewrite_transposed_convolutions(module: Any) -> Any:
    """Rewrite transposed convolutions with constant weights as ordinary ones."""
    # Element-wise operators move before the interleaving, so that kernels fuse them.
    return mutate(module, _Rewriter(module))


def legalize_transposed_convolutions(module: Any) -> Any:
    """Lower other transposed convolutions to TVM's kernels, before layouts are changed."""
    # TVM has kernels for channels first only.
    return mutate(module, _Legalizer(module))


@relax.expr_functor.mutator
class _Legalizer(relax.PyExprMutator):
    """Lowers transposed convolutions whose weights are computed or are not float32."""

    def visit_call_(self, call: Any) -> Any:
        if operator_name(call) not in TRANSPOSED_RANKS or convolution_of(call) is not None:
            return super().visit_call_(call)
        arguments = [self.visit_expr(argument) for argument in call.args]
        call = self.builder_.normalize(with_args(call, arguments))
        return call.op.get_attr("FLegalize")(self.builder_, call)


_LANES = 16
"""Number of channels in a vector."""
_SHUFFLE_COST = 1.5
"""The weight of the products of a single convolution with a shuffled output, compared with those of
several convolutions."""


@attrs.frozen(kw_only=True)
class Phases:
    """Neighbouring outputs, at most as many as the stride, that read the same inputs along an axis.

    Attributes:
        taps: For each output, the taps (indices in the filter) that it uses. None stands for a
            weight of zero. An output without taps reads no input.
        offset: The index of the first input that the first output reads.
        dilation: The distance between the inputs that an output reads.
    """

    taps: tuple[tuple[int | None, ...], ...]
    offset: int
    dilation: int = 1

    @property
    def last(self) -> int:
        """The index of the last input that the first output reads."""
        return self.offset + (max(1, len(self.taps[0])) - 1) * self.dilation


@attrs.frozen(kw_only=True)
class AxisPlan:
    """The ordinary convolutions that compute a transposed convolution along one axis.

    Attributes:
        phases: The remainders from 0 to s - 1. Each ``Phases`` has one or several neighbouring
            remainders, in order, whose outputs one convolution computes.
        positions: Number of outputs that are computed for each remainder.
        out: Number of outputs. Surplus outputs at the end are cut off.
        crop: Number of outputs to remove at the front.
    """

    phases: tuple[Phases, ...]
    positions: int
    out: int
    crop: int = 0

    @property
    def stride(self) -> int:
        """The stride of the transposed convolution along this axis."""
        return sum(len(phase.taps) for phase in self.phases)


@attrs.frozen(kw_only=True)
class TransposedAxis:
    """The sizes of a transposed convolution along one axis.

    Attributes:
        size: Number of inputs.
        kernel: Number of taps.
        stride: Distance of neighbouring inputs in the output.
        pads: Number of outputs that are left out at the front and at the back.
        output_padding: Number of outputs that are added at the back.
        dilation: Distance between taps.
    """

    size: int
    kernel: int
    stride: int
    pads: tuple[int, int]
    output_padding: int
    dilation: int = 1

    @property
    def reach(self) -> int:
        """Number of outputs from the first to the last tap."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def out(self) -> int:
        """Number of outputs."""
        return (self.size - 1) * self.stride - sum(self.pads) + self.reach + self.output_padding


def axis_plan(axis: TransposedAxis, *, together: bool = False) -> AxisPlan:
    """Plan convolutions for the remainders; ``together`` merges those with the same inputs."""
    stride, dilation = axis.stride, axis.dilation
    positions = -(-axis.out // stride)
    phases: list[Phases] = []
    for remainder in range(stride):
        # A later tap belongs to an earlier input.
        at = remainder + axis.pads[0]
        later = reversed(range(axis.kernel))
        taps = tuple(tap for tap in later if (at - tap * dilation) % stride == 0)
        first = (at - taps[0] * dilation) // stride if taps else 0
        phase = Phases(taps=(taps,), offset=first, dilation=dilation // math.gcd(stride, dilation))
        if phase.offset >= axis.size or phase.last + positions <= 0:
            phase = Phases(taps=((),), offset=0)  # all that it reads is padding
        before = phases[-1] if phases and together else None
        if before is not None and (before.offset, before.last) == (phase.offset, phase.last):
            phases[-1] = attrs.evolve(before, taps=(*before.taps, *phase.taps))
        else:
            phases.append(phase)
    return AxisPlan(phases=tuple(phases), positions=positions, out=axis.out)


def single_convolution_plan(axis: TransposedAxis) -> AxisPlan:
    """Plan one convolution for all remainders, with zero weights for unused inputs."""
    stride, front = axis.stride, axis.pads[0]
    first, end = front // stride, -(-(front + axis.out) // stride)
    window = range(-(-axis.reach // stride) - 1, -1, -1)
    places = {tap * axis.dilation: tap for tap in range(axis.kernel)}
    taps = tuple(
        tuple(places.get(stride * step + remainder) for step in window)
        for remainder in range(stride)
    )
    phases = Phases(taps=taps, offset=first - len(window) + 1)
    crop = front - first * stride
    return AxisPlan(phases=(phases,), positions=end - first, out=axis.out, crop=crop)


def _count_products(plans: Sequence[AxisPlan], channels: int) -> int:
    """Number of vector products for each position, including those with zeros."""
    return sum(
        math.prod(max(1, len(phase.taps[0])) for phase in phases)
        * -(-channels * math.prod(_outputs_per_position(phases)) // _LANES)
        for phases in itertools.product(*(plan.phases for plan in plans))
    )


def phase_weights(weights: NDArray[Any], *, groups: int, phases: Sequence[Phases]) -> NDArray[Any]:
    """The weights of an ordinary convolution that computes some remainders as channels.

    Args:
        weights: The weights of the transposed convolution, of shape (I, O of a group, spatial
            axes).
        groups: Number of groups.
        phases: The remainders to compute along each axis, with the weights that each of them uses.
    """
    inputs, outputs, *_ = weights.shape
    parts = []
    for taps in itertools.product(*(phase.taps for phase in phases)):
        part = weights
        for axis, chosen in enumerate(taps, 2):
            part = part.take([tap or 0 for tap in chosen or (None,)], axis)
            zeros = [place for place, tap in enumerate(chosen or (None,)) if tap is None]
            part[(slice(None),) * axis + (zeros,)] = 0
        parts.append(part.reshape(groups, inputs // groups, outputs, *part.shape[2:]))
    ordered = np.stack(parts, axis=1).swapaxes(2, 3)
    return np.ascontiguousarray(ordered).reshape(-1, inputs // groups, *ordered.shape[4:])


class PhaseShuffle:
    """Interleaves the outputs of ordinary convolutions to the output of a transposed convolution.

    Attributes:
        phases: For each ordinary convolution, the remainders that it computes along each axis.
    """

    def __init__(self, conv: ConvolutionCall, plans: Sequence[AxisPlan]) -> None:
        self._plans = plans
        self._groups = int(conv.call.attrs.groups)
        self._channels = conv.output_channels
        self._last = is_channels_last(conv.layout)
        self.phases = list(itertools.product(*(plan.phases for plan in plans)))

    def for_phases(self, constant: NDArray[Any], phases: Sequence[Phases]) -> NDArray[Any] | None:
        """Repeat a constant operand for the channels of an ordinary convolution, or None."""
        if constant.size == 1:
            return constant
        rank = len(self._plans) + 2
        axis = rank - 1 if self._last else 1
        numbers = per_channel(constant, rank=rank, axis=axis, channels=self._channels)
        if numbers is None:
            return None
        grouped = numbers.reshape(self._groups, 1, -1)
        shape = [1] * rank
        shape[axis] = -1
        return np.repeat(grouped, math.prod(_outputs_per_position(phases)), axis=1).reshape(shape)

    def emit(self, builder: Any, sources: Sequence[Any]) -> Any:
        """Emit the operators that interleave the outputs of all ordinary convolutions."""
        rank, first = len(self._plans), 1 if self._last else 2
        parts = [
            self._spread(builder, source, _outputs_per_position(phases))
            for source, phases in zip(sources, self.phases, strict=True)
        ]
        # From the last axis to the first, interleave neighbouring outputs, which are on an axis of
        # their own.
        for number in reversed(range(rank)):
            plan, axis = self._plans[number], first + 2 * number
            count, apart, parts = len(plan.phases), parts, []
            for start in range(0, len(apart), count):
                whole = apart[start]
                if count > 1:
                    neighbours = apart[start : start + count]
                    whole = builder.emit(relax.op.concat(neighbours, axis=axis + 1))
                shape = [*shape_of(whole)]
                shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
                parts.append(builder.emit(relax.op.reshape(whole, shape)))
        [output] = parts
        cropped = [
            (axis, plan.crop, plan.crop + plan.out)
            for axis, plan in enumerate(self._plans, first)
            if plan.out != plan.positions * plan.stride
        ]
        if not cropped:
            return output
        axes, begin, end = (list(column) for column in zip(*cropped, strict=True))
        return builder.emit(relax.op.strided_slice(output, axes, begin, end))

    def _spread(self, builder: Any, source: Any, counts: Sequence[int]) -> Any:
        """A convolution's output, with the outputs of a stride on a new axis after each axis."""
        rank, shape = len(counts), shape_of(source)
        batch, positions = shape[0], shape[1:-1] if self._last else shape[2:]
        inner = self._channels // self._groups
        channels = [self._groups, *counts, inner]
        split = [batch, *positions, *channels] if self._last else [batch, *channels, *positions]
        place, group = (1, rank + 1) if self._last else (rank + 3, 1)
        pairs = [axis for at in range(rank) for axis in (place + at, group + 1 + at)]
        both = [group, group + rank + 1]
        order = [0, *pairs, *both] if self._last else [0, *both, *pairs]
        moving = [axis for axis in order if split[axis] > 1]
        if moving != sorted(moving):
            source = builder.emit(relax.op.reshape(source, split))
            source = builder.emit(relax.op.permute_dims(source, order))
        spread = [split[axis] for axis in pairs]
        whole = [*spread, self._channels] if self._last else [self._channels, *spread]
        return builder.emit(relax.op.reshape(source, [batch, *whole]))


def _outputs_per_position(phases: Sequence[Phases]) -> list[int]:
    """Number of outputs that a convolution computes for each position, along each axis."""
    return [len(phase.taps) for phase in phases]


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):
    """Notes the ordinary convolutions of each transposed convolution's output."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._users = users_of(module["main"])
        self._parts: dict[Any, tuple[list[Any], PhaseShuffle]] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        conv = convolution_of(binding.value)
        result = None
        if conv is not None and conv.transposed:
            result = self._convolved(conv)
        elif operator_name(binding.value) in ELEMENTWISE:
            result = self._continued(binding.value)
        if result is None:
            super().visit_var_binding_(binding)
            return
        sources, shuffle = result
        out = shuffle.emit(self.builder_, sources)
        if not isinstance(binding.var, relax.DataflowVar):
            out = self.builder_.emit_output(out)
        self._parts[binding.var] = result
        self.set_var_remap(binding.var, out)

    def _convolved(self, conv: ConvolutionCall) -> tuple[list[Any], PhaseShuffle]:
        """The ordinary convolutions that replace a transposed convolution."""
        names = ("strides", "dilation", "padding", "output_padding")
        strides, dilations, pads, added = map(conv.numbers, names)
        rank, groups = conv.rank, int(conv.call.attrs.groups)
        last = is_channels_last(conv.layout)
        axes = [
            TransposedAxis(
                size=conv.input[2 + axis],
                kernel=int(conv.weights.shape[2 + axis]),
                stride=strides[axis],
                pads=(pads[axis], pads[rank + axis]),
                output_padding=added[axis],
                dilation=dilations[axis],
            )
            for axis in range(rank)
        ]
        *others, inner = axes
        single = groups == 1 or not last
        plans = [*map(axis_plan, others), axis_plan(inner, together=single)]
        if last and groups == 1:
            shared = list(map(single_convolution_plan, axes))
            channels = conv.output_channels
            read = all(
                plan.phases[0].offset < size and plan.phases[0].last + plan.positions > 0
                for plan, size in zip(shared, conv.input[2:], strict=True)
            )
            # With few channels, most of a vector is empty, which costs more than the shuffle.
            if read and _SHUFFLE_COST * _count_products(shared, channels) <= _count_products(
                plans, channels
            ):
                plans = shared
        data, shuffle = self.visit_expr(conv.call.args[0]), PhaseShuffle(conv, plans)
        sources = [self._convolution(conv, data, plans, phases) for phases in shuffle.phases]
        return sources, shuffle

    def _convolution(
        self, conv: ConvolutionCall, data: Any, plans: Sequence[AxisPlan], phases: Sequence[Phases]
    ) -> Any:
        """The ordinary convolution that computes some phases."""
        rank, groups = conv.rank, int(conv.call.attrs.groups)
        last = is_channels_last(conv.layout)
        reads = [
            (phase.offset, phase.last + plan.positions)
            for phase, plan in zip(phases, plans, strict=True)
        ]
        sizes = conv.input[2:]
        short = [
            (axis, max(0, begin), min(end, size))
            for axis, ((begin, end), size) in enumerate(
                zip(reads, sizes, strict=True), 1 if last else 2
            )
            if begin > 0 or end < size
        ]
        if short:
            axes, begin, end = (list(column) for column in zip(*short, strict=True))
            data = self.builder_.emit(relax.op.strided_slice(data, axes, begin, end))
        weights = phase_weights(conv.weights, groups=groups, phases=phases)
        letters = SPATIAL[-rank:]
        call = getattr(relax.op.nn, f"conv{rank}d")(
            data,
            constant_of(np.moveaxis(weights, 1, -1) if last else weights),
            padding=[
                *(max(0, -begin) for begin, _ in reads),
                *(max(0, end - size) for (_, end), size in zip(reads, sizes, strict=True)),
            ],
            dilation=[phase.dilation for phase in phases],
            groups=groups,
            data_layout=conv.layout,
            kernel_layout=f"O{letters}I" if last else f"OI{letters}",
        )
        return self.builder_.emit(call)

    def _continued(self, call: Any) -> tuple[list[Any], PhaseShuffle] | None:
        """An element-wise operator on the outputs of the ordinary convolutions, or None."""
        known = [a for a in call.args if isinstance(a, relax.Var) and a in self._parts]
        if len(known) != 1 or len(self._users[known[0]]) != 1:
            return None
        sources, shuffle = self._parts[known[0]]
        results = []
        for source, phases in zip(sources, shuffle.phases, strict=True):
            arguments = []
            for argument in call.args:
                if argument.same_as(known[0]):
                    arguments.append(source)
                elif isinstance(argument, tvm.ir.GenericConst):
                    constant = shuffle.for_phases(array_of(argument), phases)
                    if constant is None:
                        return None
                    arguments.append(constant_of(constant))
                elif isinstance(argument, relax.Var):
                    return None
                else:
                    arguments.append(argument)
            results.append(with_args(call, arguments))
        return [self.builder_.emit(result) for result in results], shuffle

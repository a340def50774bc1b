"""Transposed convolutions rewritten as ordinary ones, exactly.

With a stride s, output s q + r is a sum over j of inputs q - j times taps s j + r. Each remainder r
is a convolution of stride 1 with every s-th tap, over one and the same window of inputs. One
convolution with a channel for each remainder computes them all. Its output is rearranged (polyphase
decomposition; Shi et al., "Is the deconvolution layer the same as a convolutional layer?",
arXiv:1609.07009). No product with an inserted zero is left, but those of a filter whose size is no
multiple of the stride.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from chameleon_tvm.operators.layouts import SPATIAL, is_channels_last
from numpy.typing import NDArray

from chameleon_networks.graph.constants import array_of, per_channel
from chameleon_networks.graph.matching_convolutions import (
    TRANSPOSED_RANKS,
    ConvolutionCall,
    convolution_of,
)
from chameleon_networks.graph.moves import ELEMENTWISE, shape_of
from chameleon_networks.graph.relaxed import operator_name, relax, rewritten, tvm, users_of


def without_transposed(module: Any) -> Any:
    """The module with transposed convolutions of constant weights rewritten.

    Element-wise operators after one of them are computed before its output is rearranged. So they
    can become a part of the convolution's kernel.

    Args:
        module: an ``IRModule`` of Relax functions in normal form.
    """
    return rewritten(module, _Rewriter(module))


def with_transposed_kernels(module: Any) -> Any:
    """The module with a kernel of TVM's for each transposed convolution that stays one.

    TVM has such kernels for channels first alone, so that layouts must change later.

    Args:
        module: an ``IRModule`` of Relax functions in normal form, in NCHW.
    """
    return rewritten(module, _Legalizer(module))


@relax.expr_functor.mutator
class _Legalizer(relax.PyExprMutator):
    """Lowers transposed convolutions whose weights are computed, or of another type."""

    def visit_call_(self, call: Any) -> Any:
        if operator_name(call) not in TRANSPOSED_RANKS or convolution_of(call) is not None:
            return super().visit_call_(call)
        arguments = [self.visit_expr(argument) for argument in call.args]
        call = relax.Call(call.op, arguments, call.attrs, call.ty_args)
        call = self.builder_.normalize(call)
        return call.op.get_attr("FLegalize")(self.builder_, call)


@attrs.frozen(kw_only=True)
class AxisPlan:
    """How one axis is computed.

    Attributes:
        stride: of the transposed convolution.
        taps: of the ordinary one.
        start: inputs left out at the front, if the padding is larger than the filter.
        size: inputs that are read.
        before: zeros before them.
        after: zeros after them.
        positions: of the ordinary convolution's output, ``stride`` outputs each.
        crop: outputs left out at the front.
        out: outputs.
    """

    stride: int
    taps: int
    start: int
    size: int
    before: int
    after: int
    positions: int
    crop: int
    out: int


def axis_plan(
    *, size: int, reach: int, stride: int, pads: tuple[int, int], output_padding: int
) -> AxisPlan:
    """How a transposed convolution is computed along one axis.

    Args:
        size: inputs.
        reach: taps that the dilated filter covers.
        stride: inputs' distance in the output.
        pads: outputs left out at the front and at the back.
        output_padding: outputs added at the back.
    """
    front, back = pads
    out = (size - 1) * stride - front - back + reach + output_padding
    taps = -(-reach // stride)
    first, end = front // stride, -(-(front + out) // stride)
    before = taps - 1 - first
    after = end - first + taps - 1 - before - size
    start, rest = max(0, -before), max(0, -after)
    return AxisPlan(
        stride=stride,
        taps=taps,
        start=start,
        size=size - start - rest,
        before=max(0, before),
        after=max(0, after),
        positions=end - first,
        crop=front - first * stride,
        out=out,
    )


def phase_weights(
    weights: NDArray[Any], *, groups: int, strides: tuple[int, ...], dilations: tuple[int, ...]
) -> NDArray[Any]:
    """The ordinary convolution's weights.

    Args:
        weights: of the transposed one, shape (I, O of a group, spatial axes).
        groups: number of groups.
        strides: for each axis.
        dilations: for each axis; filled up with taps of zero.

    Returns:
        Shape (groups * prod(strides) * O of a group, I of a group, spatial axes); the first axis
        in this order.
    """
    inputs, outputs, *kernel = weights.shape
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    taps = [-(-r // s) for r, s in zip(reach, strides, strict=True)]
    wide = np.zeros(
        (inputs, outputs, *(t * s for t, s in zip(taps, strides, strict=True))), weights.dtype
    )
    places = [slice(0, r, d) for r, d in zip(reach, dilations, strict=True)]
    wide[(slice(None), slice(None), *places)] = weights
    rank = len(kernel)
    split = [extent for pair in zip(taps, strides, strict=True) for extent in pair]
    parts = wide.reshape(groups, inputs // groups, outputs, *split)
    windows, phases = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
    ordered = np.flip(parts.transpose(0, *phases, 2, 1, *windows), axis=tuple(range(-rank, 0)))
    return np.ascontiguousarray(ordered).reshape(-1, inputs // groups, *taps)


class PhaseShuffle:
    """How the ordinary convolution's output becomes that of the transposed one.

    Args:
        conv: the transposed convolution.
        plans: for each axis.
    """

    def __init__(self, conv: ConvolutionCall, plans: list[AxisPlan]) -> None:
        self._plans = plans
        self._groups = int(conv.call.attrs.groups)
        self._channels = conv.output_channels
        self._last = is_channels_last(conv.layout)

    @property
    def phases(self) -> int:
        """Outputs of each position."""
        return int(np.prod([plan.stride for plan in self._plans]))

    def for_each_phase(self, constant: NDArray[Any]) -> NDArray[Any] | None:
        """A constant operand of the output as one of what it is rearranged from.

        None if it differs between positions.
        """
        if constant.size == 1:
            return constant
        rank = len(self._plans) + 2
        axis = rank - 1 if self._last else 1
        numbers = per_channel(constant, rank=rank, axis=axis, channels=self._channels)
        if numbers is None:
            return None
        repeated = np.repeat(numbers.reshape(self._groups, 1, -1), self.phases, axis=1)
        shape = [1] * rank
        shape[axis] = -1
        return repeated.reshape(shape)

    def emit(self, builder: Any, source: Any) -> Any:
        """The transposed convolution's output."""
        if self.phases > 1:
            source = self._rearranged(builder, source)
        cropped = [
            (axis, plan.crop, plan.crop + plan.out)
            for axis, plan in enumerate(self._plans, 1 if self._last else 2)
            if plan.out != plan.positions * plan.stride
        ]
        if not cropped:
            return source
        axes, begin, end = (list(column) for column in zip(*cropped, strict=True))
        return builder.emit(relax.op.strided_slice(source, axes, begin, end))

    def _rearranged(self, builder: Any, source: Any) -> Any:
        rank, plans = len(self._plans), self._plans
        positions = [plan.positions for plan in plans]
        strides = [plan.stride for plan in plans]
        channels = [self._groups, *strides, self._channels // self._groups]
        batch = shape_of(source)[0]
        if self._last:
            split = [batch, *positions, *channels]
            group, first_phase, first_position = rank + 1, rank + 2, 1
        else:
            split = [batch, *channels, *positions]
            group, first_phase, first_position = 1, 2, rank + 3
        inner = first_phase + rank
        pairs = [axis for at in range(rank) for axis in (first_position + at, first_phase + at)]
        order = [0, *pairs, group, inner] if self._last else [0, group, inner, *pairs]
        spatial = [p * s for p, s in zip(positions, strides, strict=True)]
        shape = (
            [batch, *spatial, self._channels] if self._last else [batch, self._channels, *spatial]
        )
        source = builder.emit(relax.op.reshape(source, split))
        # Axes of one extent may be anywhere.
        moving = [axis for axis in order if split[axis] > 1]
        if moving != sorted(moving):
            source = builder.emit(relax.op.permute_dims(source, order))
        return builder.emit(relax.op.reshape(source, shape))


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):
    """Keeps for every output of a transposed convolution what it is rearranged from."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._users = users_of(module["main"])
        self._shuffled: dict[Any, tuple[Any, PhaseShuffle]] = {}

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
        source, shuffle = result
        out = shuffle.emit(self.builder_, source)
        if not isinstance(binding.var, relax.DataflowVar):
            out = self.builder_.emit_output(out)
        self._shuffled[binding.var] = result
        self.set_var_remap(binding.var, out)

    def _convolved(self, conv: ConvolutionCall) -> tuple[Any, PhaseShuffle]:
        """The ordinary convolution in place of a transposed one."""
        strides, dilations = conv.numbers("strides"), conv.numbers("dilation")
        pads, added = conv.numbers("padding"), conv.numbers("output_padding")
        rank, groups = conv.rank, int(conv.call.attrs.groups)
        plans = [
            axis_plan(
                size=conv.input[2 + axis],
                reach=(conv.weights.shape[2 + axis] - 1) * dilations[axis] + 1,
                stride=strides[axis],
                pads=(pads[axis], pads[rank + axis]),
                output_padding=added[axis],
            )
            for axis in range(rank)
        ]
        data = self.visit_expr(conv.call.args[0])
        last = is_channels_last(conv.layout)
        short = [
            (axis, plan.start, plan.start + plan.size)
            for axis, plan in enumerate(plans, 1 if last else 2)
            if plan.size != shape_of(data)[axis]
        ]
        if short:
            axes, begin, end = (list(column) for column in zip(*short, strict=True))
            data = self.builder_.emit(relax.op.strided_slice(data, axes, begin, end))
        weights = phase_weights(conv.weights, groups=groups, strides=strides, dilations=dilations)
        letters = SPATIAL[-rank:]
        call = getattr(relax.op.nn, f"conv{rank}d")(
            data,
            relax.const(np.ascontiguousarray(np.moveaxis(weights, 1, -1)) if last else weights),
            padding=[*(plan.before for plan in plans), *(plan.after for plan in plans)],
            groups=groups,
            data_layout=conv.layout,
            kernel_layout=f"O{letters}I" if last else f"OI{letters}",
        )
        return self.builder_.emit(call), PhaseShuffle(conv, plans)

    def _continued(self, call: Any) -> tuple[Any, PhaseShuffle] | None:
        """An element-wise operator on what a transposed convolution's output comes from."""
        known = [a for a in call.args if isinstance(a, relax.Var) and a in self._shuffled]
        if len(known) != 1 or len(self._users[known[0]]) != 1:
            return None
        source, shuffle = self._shuffled[known[0]]
        arguments = []
        for argument in call.args:
            if argument.same_as(known[0]):
                arguments.append(source)
            elif isinstance(argument, tvm.ir.GenericConst):
                constant = shuffle.for_each_phase(array_of(argument))
                if constant is None:
                    return None
                arguments.append(relax.const(constant))
            elif isinstance(argument, relax.Var):
                return None
            else:
                arguments.append(argument)
        result = relax.Call(call.op, arguments, call.attrs, call.ty_args)
        return self.builder_.emit(result), shuffle

"""The operator of convolutions of any rank, as TensorIR and as a float64 reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from chameleon_core.plugin_api import Arrays
from numpy.typing import NDArray

from chameleon_tvm._arrays import contiguous
from chameleon_tvm._late_tvm import te, tvm
from chameleon_tvm._operators.epilogues import EpilogueOperator
from chameleon_tvm._operators.layouts import (
    SPATIAL,
    channel_block,
    is_channels_last,
    physical_index,
    physical_shape,
)

_TAPS = ("rz", "ry", "rx")
"""Names of the loops over a filter's axes."""


class Convolution(EpilogueOperator):
    """The operator of convolutions, possibly grouped. Inputs are data, weights, [bias], [residual].

    The unscheduled function takes weights as (spatial axes, I, O) if channels come last, else as
    (O, I, spatial axes).
    """

    def arranged(self, index: int, array: NDArray[Any]) -> NDArray[Any]:
        array = self.epilogue.stored(index, array)
        if index == 0:
            return to_layout(array, self.spec.layout)
        if index in self.constants:
            if index != 1 or not is_channels_last(self.spec.layout):
                return array
            return contiguous(np.moveaxis(array, (1, 0), (-2, -1)))
        return to_layout(array, self.spec.output_layout)

    def logical(self, outputs: Arrays) -> Arrays:
        return [from_layout(out, self.spec.output_layout) for out in super().logical(outputs)]

    def reference(self, inputs: Arrays) -> Arrays:
        spec = self.spec
        data = self.epilogue.centred(inputs[0], inputs[2:])
        weights = inputs[1].astype(np.float64)
        before, after = spec.pads[: spec.rank], spec.pads[spec.rank :]
        data = np.pad(data, ((0, 0), (0, 0), *zip(before, after, strict=True)))
        n, oc, *extents = spec.output_shape
        groups = spec.group_count
        _, ic, *kernel = spec.filter_shape
        data = data.reshape(n, groups, ic, *data.shape[2:])
        filters = weights.reshape(groups, oc // groups, ic, *kernel)
        out = np.zeros((n, groups, oc // groups, *extents))
        for tap in np.ndindex(*kernel):
            window = tuple(
                slice(at * dilation, at * dilation + (extent - 1) * stride + 1, stride)
                for at, dilation, extent, stride in zip(
                    tap, spec.dilations, extents, spec.strides, strict=True
                )
            )
            patch = data[(slice(None),) * 3 + window].reshape(n, groups, ic, -1)
            out += (filters[(slice(None),) * 3 + tap] @ patch).reshape(out.shape)
        return [self.epilogue.reference(out.reshape(spec.output_shape), inputs[2:])]

    def prim_func(self) -> tvm.tirx.PrimFunc:
        spec = self.spec
        n, oc = spec.output_shape[:2]
        _, ic, *kernel = spec.filter_shape
        c, *size = spec.input[1:]
        before, after = spec.pads[: spec.rank], spec.pads[spec.rank :]
        per_group = oc // spec.group_count
        last = is_channels_last(spec.layout)
        data = te.placeholder(
            physical_shape(spec.input, spec.layout), self.epilogue.data_type, name="data"
        )
        shape = (*kernel, ic, oc) if last else spec.filter_shape
        weights = te.placeholder(shape, self.epilogue.weights_type, name="weights")
        operand, element = self.epilogue.operand, self.epilogue.centred_element

        def pad(*indices: Any) -> Any:
            b, channel, *at = _logical_index(indices, spec.layout)
            inside: list[Any] = []
            for x, first, extent in zip(at, before, size, strict=True):
                inside += [x >= first, x < extent + first]
            at = [x - first for x, first in zip(at, before, strict=True)]
            value = element(data(*physical_index((b, channel, *at), spec.layout)))
            return te.if_then_else(te.all(*inside), value, te.const(0, self.epilogue.centred_type))

        padded = data
        if any(spec.pads):
            sums = (sum(axis) for axis in zip(size, before, after, strict=True))
            padded = te.compute(
                physical_shape((n, c, *sums), spec.layout),
                pad,
                name="padded",
                varargs_names=_axis_names(spec.layout, "c"),
            )

        def input_element(*indices: Any) -> Any:
            return padded(*indices) if any(spec.pads) else element(data(*indices))

        channel_axis = te.reduce_axis((0, ic), name="rc")
        taps = [
            te.reduce_axis((0, extent), name=name)
            for extent, name in zip(kernel, _TAPS[-spec.rank :], strict=True)
        ]

        def convolve(*indices: Any) -> Any:
            b, o, *at = _logical_index(indices, spec.output_layout)
            source = (o // per_group) * ic + channel_axis if spec.group_count > 1 else channel_axis
            at = [
                x * stride + tap * dilation
                for x, stride, tap, dilation in zip(
                    at, spec.strides, taps, spec.dilations, strict=True
                )
            ]
            tap = (*taps, channel_axis, o) if last else (o, channel_axis, *taps)
            return te.sum(
                operand(input_element(*physical_index((b, source, *at), spec.layout)))
                * operand(weights(*tap)),
                axis=[*taps, channel_axis] if last else [channel_axis, *taps],
            )

        out_shape = physical_shape(spec.output_shape, spec.output_layout)
        names = _axis_names(spec.output_layout, "oc")
        convolution = te.compute(out_shape, convolve, name=f"conv{spec.rank}d", varargs_names=names)
        constants, out = self.epilogue.apply(
            convolution, lambda indices: _logical_index(indices, spec.output_layout)[1], names
        )
        return te.create_prim_func([data, weights, *constants, out])


def to_layout(image: NDArray[Any], layout: str) -> NDArray[Any]:
    """Copy an image (N, C, spatial axes) into a contiguous array in a layout such as NHWC."""
    if is_channels_last(layout):
        return np.ascontiguousarray(np.moveaxis(image, 1, -1))
    block = channel_block(layout)
    if not block:
        return np.ascontiguousarray(image)
    n, c, *spatial = image.shape
    return np.ascontiguousarray(np.moveaxis(image.reshape(n, c // block, block, *spatial), 2, -1))


def from_layout(image: NDArray[Any], layout: str) -> NDArray[Any]:
    """View an image in a layout such as NHWC as an array (N, C, spatial axes), without a copy."""
    if is_channels_last(layout):
        return np.moveaxis(image, -1, 1)
    if not channel_block(layout):
        return image
    n, outer, *spatial, block = image.shape
    return np.moveaxis(image, -1, 2).reshape(n, outer * block, *spatial)


def _axis_names(layout: str, channel: str) -> list[str]:
    """Names of an image's loops. A schedule's knobs have names from these, such as ``tile_h``."""
    spatial = [letter.lower() for letter in SPATIAL if letter in layout]
    if is_channels_last(layout):
        return ["n", *spatial, channel]
    inner = [f"{channel}_inner"] if channel_block(layout) else []
    return ["n", channel, *spatial, *inner]


def _logical_index(indices: tuple[Any, ...], layout: str) -> tuple[Any, ...]:
    if is_channels_last(layout):
        b, *at, c = indices
        return (b, c, *at)
    block = channel_block(layout)
    if not block:
        return indices
    b, outer, *at, inner = indices
    return (b, outer * block + inner, *at)

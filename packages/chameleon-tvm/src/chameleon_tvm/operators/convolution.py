"""2-D convolutions: TensorIR in the task's layouts, and a float64 reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from chameleon_core.stages import Arrays
from chameleon_core.task import Task
from numpy.typing import NDArray

from chameleon_tvm.operators.base import Operator, seeded_array, tolerance_of, widened
from chameleon_tvm.operators.epilogue import Epilogue
from chameleon_tvm.operators.specs import (
    Conv2dSpec,
    DepthwiseConv2dSpec,
    channel_block,
    physical_shape,
)

if TYPE_CHECKING:
    from chameleon_tvm.quick_tvm import tvm


class Conv2d(Operator):
    """A convolution, possibly grouped; inputs are data, weights, [bias], [residual].

    The unscheduled function takes the weights as HWIO for NHWC and as OIHW otherwise.
    """

    spec: Conv2dSpec | DepthwiseConv2dSpec

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.spec = self._specification(task)
        self.epilogue = Epilogue(self.spec)
        self.constants = self.epilogue.constants

    @staticmethod
    def _specification(task: Task) -> Conv2dSpec | DepthwiseConv2dSpec:
        return Conv2dSpec.of(task)

    @property
    def tolerance(self) -> float:
        return tolerance_of(self.spec.dtype)

    def inputs(self) -> Arrays:
        spec = self.spec
        return [
            seeded_array(spec.input, spec.dtype, 0),
            seeded_array(spec.filter_shape, spec.dtype, 1),
            *self.epilogue.inputs(),
        ]

    def arranged(self, place: int, array: NDArray[Any]) -> NDArray[Any]:
        if place == 0:
            return to_layout(array, self.spec.layout)
        if place in self.constants:
            is_weights = place == 1 and self.spec.layout == "NHWC"
            return np.ascontiguousarray(array.transpose(2, 3, 1, 0)) if is_weights else array
        return to_layout(array, self.spec.output_layout)

    def logical(self, outputs: Arrays) -> Arrays:
        return [from_layout(one, self.spec.output_layout) for one in widened(outputs)]

    def reference(self, inputs: Arrays) -> Arrays:
        spec = self.spec
        data, weights = (array.astype(np.float64) for array in inputs[:2])
        (sh, sw), (dh, dw), (top, left, bottom, right) = spec.strides, spec.dilations, spec.pads
        data = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)))
        n, oc, oh, ow = spec.output_shape
        groups = spec.group_count
        _, ic, kh, kw = spec.filter_shape
        data = data.reshape(n, groups, ic, *data.shape[2:])
        filters = weights.reshape(groups, oc // groups, ic, kh, kw)
        out = np.zeros((n, groups, oc // groups, oh, ow))
        for ry in range(kh):
            for rx in range(kw):
                rows = slice(ry * dh, ry * dh + (oh - 1) * sh + 1, sh)
                columns = slice(rx * dw, rx * dw + (ow - 1) * sw + 1, sw)
                seen = data[..., rows, columns].reshape(n, groups, ic, oh * ow)
                out += (filters[:, :, :, ry, rx] @ seen).reshape(out.shape)
        return [self.epilogue.reference(out.reshape(spec.output_shape), inputs[2:])]

    def prim_func(self) -> tvm.tirx.PrimFunc:
        from chameleon_tvm.quick_tvm import te  # noqa: PLC0415 - see ``Operator``

        spec = self.spec
        n, oc = spec.output_shape[:2]
        _, ic, kh, kw = spec.filter_shape
        (sh, sw), (dh, dw), (top, left, bottom, right) = spec.strides, spec.dilations, spec.pads
        c, h, w = spec.input[1:]
        per_group = oc // spec.group_count
        nhwc = spec.layout == "NHWC"
        data = te.placeholder(physical_shape(spec.input, spec.layout), spec.dtype, name="data")
        shape = (kh, kw, ic, oc) if nhwc else spec.filter_shape
        weights = te.placeholder(shape, spec.dtype, name="weights")
        padded_shape = physical_shape((n, c, h + top + bottom, w + left + right), spec.layout)
        zero = data.dtype

        def pad(*place: Any) -> Any:
            b, channel, y, x = _logical_index(place, spec.layout)
            inside = te.all(y >= top, y < h + top, x >= left, x < w + left)
            value = data(*_physical_index((b, channel, y - top, x - left), spec.layout))
            return te.if_then_else(inside, value, te.const(0, zero)) if any(spec.pads) else value

        padded = data
        if any(spec.pads):
            names = _axis_names(spec.layout, "c")
            padded = te.compute(padded_shape, pad, name="padded", varargs_names=names)
        channel_axis = te.reduce_axis((0, ic), name="rc")
        row = te.reduce_axis((0, kh), name="ry")
        column = te.reduce_axis((0, kw), name="rx")

        def convolve(*place: Any) -> Any:
            b, o, y, x = _logical_index(place, spec.output_layout)
            source = (o // per_group) * ic + channel_axis if spec.group_count > 1 else channel_axis
            at = (b, source, y * sh + row * dh, x * sw + column * dw)
            tap = (row, column, channel_axis, o) if nhwc else (o, channel_axis, row, column)
            return te.sum(
                padded(*_physical_index(at, spec.layout)).astype("float32")
                * weights(*tap).astype("float32"),
                axis=[row, column, channel_axis] if nhwc else [channel_axis, row, column],
            )

        out_shape = physical_shape(spec.output_shape, spec.output_layout)
        names = _axis_names(spec.output_layout, "oc")
        sums = te.compute(out_shape, convolve, name="conv2d", varargs_names=names)
        more, out = self.epilogue.apply(
            sums, lambda place: _logical_index(place, spec.output_layout)[1], names
        )
        return te.create_prim_func([data, weights, *more, out])


class DepthwiseConv2d(Conv2d):
    """A convolution of every channel with filters of its own."""

    @staticmethod
    def _specification(task: Task) -> DepthwiseConv2dSpec:
        return DepthwiseConv2dSpec.of(task)


def to_layout(image: NDArray[Any], layout: str) -> NDArray[Any]:
    """An (N, C, H, W) array as a contiguous array in a layout."""
    if layout == "NCHW":
        return np.ascontiguousarray(image)
    if layout == "NHWC":
        return np.ascontiguousarray(image.transpose(0, 2, 3, 1))
    block = channel_block(layout)
    n, c, h, w = image.shape
    return np.ascontiguousarray(image.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2))


def from_layout(image: NDArray[Any], layout: str) -> NDArray[Any]:
    """The (N, C, H, W) view of an array in a layout."""
    if layout == "NCHW":
        return image
    if layout == "NHWC":
        return image.transpose(0, 3, 1, 2)
    n, outer, h, w, block = image.shape
    return image.transpose(0, 1, 4, 2, 3).reshape(n, outer * block, h, w)


def _axis_names(layout: str, channel: str) -> list[str]:
    """Names of an image's loops, after which a schedule's knobs are called (``tile_h``)."""
    if layout == "NHWC":
        return ["n", "h", "w", channel]
    inner = [f"{channel}_inner"] if channel_block(layout) else []
    return ["n", channel, "h", "w", *inner]


def _logical_index(place: tuple[Any, ...], layout: str) -> tuple[Any, Any, Any, Any]:
    if layout == "NCHW":
        b, c, y, x = place
    elif layout == "NHWC":
        b, y, x, c = place
    else:
        b, outer, y, x, inner = place
        c = outer * channel_block(layout) + inner
    return b, c, y, x


def _physical_index(place: tuple[Any, Any, Any, Any], layout: str) -> tuple[Any, ...]:
    b, c, y, x = place
    if layout == "NCHW":
        return b, c, y, x
    if layout == "NHWC":
        return b, y, x, c
    block = channel_block(layout)
    return b, c // block, y, x, c % block

"""Converters of torch's resizing, sampling and pooling that TVM's importer lacks or misreads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from chameleon_networks._graph.relax_utils import (
    BORDER,
    CUBIC,
    LINEAR,
    NEAREST,
    REFLECTION,
    ZEROS,
    GridSample,
    relax,
    transposed_convolution,
)
from chameleon_networks._importers.torch.lowering.torch_calls import Converter, TorchCall, extents

op = relax.op


def _nearest(call: TorchCall) -> Any:
    """``upsample_nearest2d``, which takes the pixel at the rounded-down coordinate."""
    x = call.value(0)
    if not _scales_match_extents(call, extents(x)):
        for axis, factor in enumerate(call.node.args[2], 2):
            places = (torch.arange(call.shape[axis]) * (1.0 / factor)).floor().long()
            places = places.clamp(max=extents(call.value(0))[axis] - 1)
            x = op.take(x, relax.const(places.numpy(), "int64"), axis)
        return x
    options = {"coordinate_transformation_mode": "asymmetric", "rounding_method": "floor"}
    return op.image.resize2d(x, call.shape[2:], layout="NCHW", method="nearest_neighbor", **options)


def _scales_match_extents(call: TorchCall, shape: Sequence[int]) -> bool:
    """Whether the scale factors of a resize equal the ratios of the extents, or are not given."""
    factors = call.node.args[-1]
    return factors is None or all(
        new == old * factor
        for new, old, factor in zip(call.shape[2:], shape[2:], factors, strict=True)
    )


def _check_interpolates_floats(call: TorchCall) -> None:
    if "int" in call.dtype:  # torch rounds after each axis, with weights of 16 bits
        raise NotImplementedError("it interpolates integers")


def _resize_bilinear(call: TorchCall) -> Any:
    """``upsample_bilinear2d``; TVM's factors equal the extents' ratios, and are in float32."""
    _check_interpolates_floats(call)
    known = _scales_match_extents(call, extents(call.value(0))) or call.node.args[2]
    if known and call.dtype != "float64":
        return call.importer._upsample_bilinear2d(call.node)  # noqa: SLF001 - no public method
    return _interpolate(_linear_weights, call)


def _linear_weights(share: NDArray[Any]) -> list[NDArray[Any]]:
    return [1 - share, share]


def _cubic_weights(share: NDArray[Any]) -> list[NDArray[Any]]:
    a = -0.75
    near = [((a + 2) * x - (a + 3)) * x * x + 1 for x in (share, 1 - share)]
    far = [((a * x - 5 * a) * x + 8 * a) * x - 4 * a for x in (1 + share, 2 - share)]
    return [far[0], *near, far[1]]


def _interpolate(weights_of: Callable[[NDArray[Any]], list[NDArray[Any]]], call: TorchCall) -> Any:
    """``upsample_linear1d`` and the like: a sum of weighted pixels, axis by axis.

    Torch's own decomposition rounds a place twice, so that those of long signals are off.
    """
    _check_interpolates_floats(call)
    wide = np.dtype("float64" if call.dtype == "float64" else "float32")
    [x] = call.operands(1, wide.name)
    align_corners, factors = bool(call.node.args[2]), call.node.args[3] or [None] * 3
    for axis in reversed(range(2, len(call.shape))):
        old, new = extents(x)[axis], call.shape[axis]
        places = _places(old, new, factors[axis - 2], wide, align_corners=align_corners)
        if weights_of is _linear_weights:
            if old == new:  # whatever the factor
                continue
            places = np.maximum(places, 0)
        first = np.minimum(np.floor(places), old - 1)
        weights = weights_of(np.clip(places - first, 0, 1))
        shape = [-1, *[1] * (len(call.shape) - 1 - axis)]
        parts = []
        for tap, weight in enumerate(weights, 1 - len(weights) // 2):
            pixels = relax.const(np.clip(first + tap, 0, old - 1), "int64")
            factor = relax.const(weight.reshape(shape), wide.name)
            parts.append(call.emit(call.emit(op.take(x, pixels, axis)) * factor))
        x = reduce(lambda total, part: call.emit(total + part), parts)
    return op.astype(x, call.dtype)


def _places(
    old: int, new: int, factor: float | None, kind: np.dtype[Any], *, align_corners: bool
) -> NDArray[Any]:
    """The input coordinate of each output pixel along an axis, which is rounded once."""
    numbers = np.arange(new, dtype=np.float64)
    if align_corners:
        step = kind.type(old - 1) / kind.type(max(new - 1, 1))
        return np.asarray(numbers * step).astype(kind)
    step = kind.type(old) / kind.type(new) if factor is None else kind.type(1 / factor)
    return np.asarray((numbers + 0.5) * step - 0.5).astype(kind)


def _resize_antialias(mode: str, call: TorchCall) -> Any:
    """Resize with ``antialias`` by a product with a constant matrix for each axis."""
    # Resizing is linear and separable, so that the columns are the resized unit vectors.
    _check_interpolates_floats(call)
    x, align_corners = call.value(0), bool(call.argument(2, "align_corners"))
    factors = call.argument(3, "scales_h"), call.argument(4, "scales_w")
    known = None not in factors and not align_corners
    resize = getattr(torch.ops.aten, f"_upsample_{mode}2d_aa")

    def weights(old: int, new: int, factor: float | None) -> Any:
        """The matrix of shape (new, old) that resizes one axis."""
        wide = torch.float64 if call.dtype == "float64" else torch.float32
        unit = torch.eye(old, dtype=wide).reshape(1, 1, old, old)
        scales = factor, None if factor is None else 1.0
        matrix = resize(unit, [new, old], align_corners, *scales)
        return relax.const(matrix.reshape(new, old).numpy(), call.dtype)

    rows, columns = map(weights, extents(x)[2:], call.shape[2:], factors if known else (None, None))
    return op.matmul(rows, op.matmul(x, op.permute_dims(columns)))


def _grid_sample(call: TorchCall) -> Any:
    """``grid_sampler_2d`` and ``_3d``."""
    mode, padding, align_corners = call.node.args[2:5]
    sampling = GridSample(
        method=(LINEAR, NEAREST, CUBIC)[mode],
        padding=(ZEROS, BORDER, REFLECTION)[padding],
        align_corners=bool(align_corners),
        axes=len(call.shape) - 2,
        moves_places=True,
    )
    return sampling.apply(call.importer.block_builder, call.value(0), call.value(1))


def _avg_pool(axes: int, call: TorchCall) -> Any:
    """``avg_pool1d``, ``avg_pool2d`` and ``avg_pool3d``."""
    if "int" in call.dtype:
        raise NotImplementedError("it averages integers")
    # TVM lacks ``divisor_override``. With ``ceil_mode`` it counts elements beyond the padding.
    kernel = _per_axis(call.node.args[1], axes)
    ceil, divisor = bool(call.argument(4, "ceil_mode")), call.argument(6, "divisor_override")
    if not ceil and divisor is None:
        return getattr(call.importer, f"_avg_pool{axes}d")(call.node)
    strides = _per_axis(call.argument(2, "stride") or kernel, axes)
    padding = _per_axis(call.argument(3, "padding", 0), axes)
    x = call.value(0)
    shape, target = extents(x)[-axes:], call.shape[-axes:]
    pads = [(0, 0)] * (len(extents(x)) - axes) + [
        (low, max(0, (count - 1) * step + size - extent - low))
        for low, count, step, size, extent in zip(
            padding, target, strides, kernel, shape, strict=True
        )
    ]
    pool = getattr(torch.nn.functional, f"avg_pool{axes}d")
    ones = torch.ones([1, 1, *shape])
    count_include_pad = bool(call.argument(5, "count_include_pad", True))
    others = () if axes == 1 else (divisor,)
    pooled_reference = pool(ones, kernel, strides, padding, ceil, count_include_pad, *others)
    flat = [width for pair in reversed(pads[-axes:]) for width in pair]
    pooled_ones = pool(torch.nn.functional.pad(ones, flat), kernel, strides)
    pooled_ones = pooled_ones[(..., *(slice(count) for count in target))]
    x = call.emit(op.nn.pad(x, [width for pair in pads for width in pair]))
    x = op.reshape(x, [1] * (axes + 2 - len(extents(x))) + extents(x))
    pool_nd = getattr(op.nn, f"avg_pool{axes}d")
    pooled = pool_nd(x, kernel, strides, layout=f"NC{'DHW'[-axes:]}")
    pooled = op.strided_slice(pooled, list(range(2, axes + 2)), [0] * axes, target)
    factors = relax.const((pooled_reference / pooled_ones).numpy(), call.dtype)
    return op.reshape(pooled * factors, call.shape)


def _per_axis(value: Any, axes: int) -> list[int]:
    """The value of an option for each axis, from a list or from one value for all axes."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    return values * axes if len(values) == 1 else values


def _max_pool(method: str, call: TorchCall) -> Any:
    """Max pooling without its second result, the indices, which TVM does not compute."""
    if any(user.args[1] == 1 and user.users for user in call.node.users):
        raise NotImplementedError("the places of the largest numbers are not computed")
    if len(call.node.args) > 2 and not call.node.args[2]:  # noqa: PLR2004 - the default stride
        call.node.update_arg(2, call.node.args[1])
    return getattr(call.importer, method)(call.node)


def _convolution(call: TorchCall) -> Any:
    """``convolution``; TVM's importer reads few of the transposed ones."""
    x, weights, bias, *windows, transposed, output_padding, groups = call.node.args
    if not transposed:
        return call.importer._convolution(call.node)  # noqa: SLF001 - no public method
    axes = len(call.shape) - 2
    stride, padding, dilation = (_per_axis(value, axes) for value in windows)
    result = transposed_convolution(
        call.tensor(x),
        call.tensor(weights),
        strides=stride,
        padding=padding * 2,
        output_padding=_per_axis(output_padding, axes),
        dilation=dilation,
        groups=int(groups),
    )
    if bias is None:
        return result
    return result + op.reshape(call.tensor(bias), [1, -1, *[1] * axes])


CONVERTERS: dict[str, Converter] = {
    "upsample_nearest2d.vec": _nearest,
    "upsample_bilinear2d.vec": _resize_bilinear,
    "upsample_bicubic2d.vec": partial(_interpolate, _cubic_weights),
    **dict.fromkeys(
        ("upsample_linear1d.vec", "upsample_trilinear3d.vec"),
        partial(_interpolate, _linear_weights),
    ),
    "_upsample_bilinear2d_aa.default": partial(_resize_antialias, "bilinear"),
    "_upsample_bicubic2d_aa.default": partial(_resize_antialias, "bicubic"),
    "grid_sampler_2d.default": _grid_sample,
    "grid_sampler_3d.default": _grid_sample,
    **{f"avg_pool{axes}d.default": partial(_avg_pool, axes) for axes in (1, 2, 3)},
    "max_pool2d_with_indices.default": partial(_max_pool, "_max_pool2d_with_indices"),
    "max_pool3d_with_indices.default": partial(_max_pool, "_max_pool3d_with_indices"),
    "convolution.default": _convolution,
}
"""Converters by the name of the operator."""

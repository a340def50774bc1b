"""Converters of torch's resizing, sampling and pooling that TVM's importer lacks or misreads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

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


def _resize_smooth(mode: str, method: str, call: TorchCall) -> Any:
    """Resize without ``antialias``; TVM supports only factors that equal the extents' ratios."""
    _check_interpolates_floats(call)
    if _scales_match_extents(call, extents(call.value(0))) or call.node.args[2]:
        return getattr(call.importer, method)(call.node)
    return _resize_by_matrices(mode, call, call.node.args[3], antialias=False)


def _resize_antialias(mode: str, call: TorchCall) -> Any:
    """Resize with ``antialias``."""
    _check_interpolates_floats(call)
    factors = call.argument(3, "scales_h"), call.argument(4, "scales_w")
    known = None not in factors and not call.argument(2, "align_corners")
    return _resize_by_matrices(mode, call, factors if known else None, antialias=True)


def _resize_by_matrices(mode: str, call: TorchCall, factors: Any, *, antialias: bool) -> Any:
    """Resize by a product with a constant matrix for each axis."""
    # Resizing is linear and separable, so that the columns are the resized unit vectors.
    x, align_corners = call.value(0), bool(call.argument(2, "align_corners"))
    name = f"_upsample_{mode}2d_aa" if antialias else f"upsample_{mode}2d"

    def weights(old: int, new: int, factor: float | None) -> Any:
        """The matrix of shape (new, old) that resizes one axis."""
        unit = torch.eye(old).reshape(1, 1, old, old)
        scales = factor, None if factor is None else 1.0
        matrix = getattr(torch.ops.aten, name)(unit, [new, old], align_corners, *scales)
        return relax.const(matrix.reshape(new, old).numpy(), call.dtype)

    rows, columns = map(weights, extents(x)[2:], call.shape[2:], factors or (None, None))
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
    "upsample_bilinear2d.vec": partial(_resize_smooth, "bilinear", "_upsample_bilinear2d"),
    "upsample_bicubic2d.vec": partial(_resize_smooth, "bicubic", "_upsample_bicubic2d"),
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

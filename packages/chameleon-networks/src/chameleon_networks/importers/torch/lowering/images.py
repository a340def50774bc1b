"""Resizing, sampling and pooling of images that TVM's importer lacks, or reads otherwise."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from chameleon_networks.graph.relaxed import relax
from chameleon_networks.importers.torch.lowering.values import Call, Converter, extents


def _nearest(call: Call) -> Any:
    """``upsample_nearest2d``: the pixel at the rounded-down place, not at the nearest centre."""
    return call.emit(
        relax.op.image.resize2d(
            call.value(0),
            call.shape[2:],
            layout="NCHW",
            method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric",
            rounding_method="floor",
        )
    )


def _smoothed(mode: str, call: Call) -> Any:
    """Resizing with ``antialias``: two products with constant matrices, one for each axis.

    Resizing is linear and separable, so the image of each unit vector is a column.
    """
    x = call.value(0)
    aligned = bool(call.given(2, "align_corners", False))
    rows, columns = (
        relax.const(_weights(mode, old, new, aligned=aligned), call.dtype)
        for old, new in zip(extents(x)[2:], call.shape[2:], strict=True)
    )
    wide = call.emit(relax.op.matmul(x, call.emit(relax.op.permute_dims(columns))))
    return call.emit(relax.op.matmul(rows, wide))


def _weights(mode: str, old: int, new: int, *, aligned: bool) -> Any:
    """The matrix (new, old) of resizing along one axis."""
    made = torch.nn.functional.interpolate(
        torch.eye(old).reshape(1, 1, old, old),
        size=(new, old),
        mode=mode,
        antialias=True,
        align_corners=aligned,
    )
    return made.reshape(new, old).numpy()


def _grid_sample(call: Call) -> Any:
    """``grid_sampler_2d``: torch has the two coordinates last, TVM after the batch."""
    made = relax.op.image.grid_sample(
        call.value(0),
        call.emit(relax.op.permute_dims(call.value(1), [0, 3, 1, 2])),
        method=("bilinear", "nearest", "bicubic")[call.node.args[2]],
        layout="NCHW",
        padding_mode=("zeros", "border", "reflection")[call.node.args[3]],
        align_corners=bool(call.node.args[4]),
    )
    return call.emit(made)


def _average(call: Call) -> Any:
    """``avg_pool2d``; with ``divisor_override`` the padding counts, whatever else is said."""
    divisor = call.given(6, "divisor_override")
    if divisor is None:
        return call.importer._avg_pool2d(call.node)  # noqa: SLF001 - it has no other way in
    x = call.value(0)
    kernel = _each(call.node.args[1], 2)
    made = call.emit(
        relax.op.nn.avg_pool2d(
            x,
            pool_size=kernel,
            strides=_each(call.given(2, "stride") or kernel, 2),
            padding=_each(call.given(3, "padding", 0), 2),
            ceil_mode=bool(call.given(4, "ceil_mode", False)),
            count_include_pad=True,
            layout="NCHW",
        )
    )
    scale = kernel[0] * kernel[1] / divisor
    return call.emit(relax.op.multiply(made, relax.const(scale, str(x.ty.dtype))))


def _each(value: Any, axes: int) -> list[int]:
    """An option of each axis, which may be given once for all."""
    found = list(value) if isinstance(value, list | tuple) else [value]
    return found * axes if len(found) == 1 else found


def _largest(method: str, call: Call) -> Any:
    """Max pooling without the places of the largest numbers, which TVM does not compute."""
    if any(user.args[1] == 1 and user.users for user in call.node.users):
        raise NotImplementedError("the places of the largest numbers are not computed")
    return getattr(call.importer, method)(call.node)


def _transposed(call: Call) -> Any:
    """``convolution``; the importer has no transposed one of three dimensions."""
    transposed, rank = bool(call.node.args[6]), len(extents(call.value(0)))
    if not transposed or rank != 5:  # noqa: PLR2004 - a batch of volumes with channels
        return call.importer._convolution(call.node)  # noqa: SLF001 - it has no other way in
    stride, padding, dilation = (_each(call.node.args[place], 3) for place in (3, 4, 5))
    made = call.emit(
        relax.op.nn.conv3d_transpose(
            call.value(0),
            call.value(1),
            strides=stride,
            padding=padding,
            output_padding=_each(call.node.args[7], 3),
            dilation=dilation,
            groups=int(call.node.args[8]),
            data_layout="NCDHW",
            kernel_layout="IODHW",
        )
    )
    if call.node.args[2] is None:
        return made
    bias = call.tensor(call.node.args[2])
    return call.emit(relax.op.add(made, call.emit(relax.op.reshape(bias, [1, -1, 1, 1, 1]))))


CONVERTERS: dict[str, Converter] = {
    "upsample_nearest2d.vec": _nearest,
    "_upsample_bilinear2d_aa.default": partial(_smoothed, "bilinear"),
    "_upsample_bicubic2d_aa.default": partial(_smoothed, "bicubic"),
    "grid_sampler_2d.default": _grid_sample,
    "avg_pool2d.default": _average,
    "max_pool2d_with_indices.default": partial(_largest, "_max_pool2d_with_indices"),
    "max_pool3d_with_indices.default": partial(_largest, "_max_pool3d_with_indices"),
    "convolution.default": _transposed,
}
"""Converters by the name of the operator."""

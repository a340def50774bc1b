"""Resizing, sampling and pooling of images that TVM's importer lacks, or reads otherwise."""

from __future__ import annotations

from typing import Any

import torch

from chameleon_networks.graph.relaxed import relax
from chameleon_networks.importers.torch.lowering.values import (
    Converter,
    dtype_of,
    extents,
    given,
    tensor,
)


def _nearest(node: Any, importer: Any) -> Any:
    """``upsample_nearest2d``: the pixel at the rounded-down place, not at the nearest centre."""
    x = importer.env[node.args[0]]
    size = [int(extent) for extent in node.meta["val"].shape[2:]]
    return importer.block_builder.emit(
        relax.op.image.resize2d(
            x,
            size,
            layout="NCHW",
            method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric",
            rounding_method="floor",
        )
    )


def _smoothed(mode: str) -> Converter:
    """Resizing with ``antialias``: two products with constant matrices, one for each axis.

    Resizing is linear and separable, so the image of each unit vector is a column.
    """

    def convert(node: Any, importer: Any) -> Any:
        emit = importer.block_builder.emit
        x = importer.env[node.args[0]]
        aligned = bool(given(node, 2, "align_corners", False))
        before, after = extents(x)[2:], [int(extent) for extent in node.meta["val"].shape[2:]]
        rows, columns = (
            relax.const(_weights(mode, old, new, aligned=aligned), dtype_of(node))
            for old, new in zip(before, after, strict=True)
        )
        wide = emit(relax.op.matmul(x, emit(relax.op.permute_dims(columns))))
        return emit(relax.op.matmul(rows, wide))

    return convert


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


def _grid_sample(node: Any, importer: Any) -> Any:
    """``grid_sampler_2d``: torch has the two coordinates last, TVM after the batch."""
    emit = importer.block_builder.emit
    data, grid = (importer.env[one] for one in node.args[:2])
    made = relax.op.image.grid_sample(
        data,
        emit(relax.op.permute_dims(grid, [0, 3, 1, 2])),
        method=("bilinear", "nearest", "bicubic")[node.args[2]],
        layout="NCHW",
        padding_mode=("zeros", "border", "reflection")[node.args[3]],
        align_corners=bool(node.args[4]),
    )
    return emit(made)


def _average(node: Any, importer: Any) -> Any:
    """``avg_pool2d``; with ``divisor_override`` the padding counts, whatever else is said."""
    divisor = given(node, 6, "divisor_override")
    if divisor is None:
        return importer._avg_pool2d(node)  # noqa: SLF001 - it has no other way in
    emit = importer.block_builder.emit
    x = importer.env[node.args[0]]
    kernel = _pair(node.args[1])
    made = emit(
        relax.op.nn.avg_pool2d(
            x,
            pool_size=kernel,
            strides=_pair(given(node, 2, "stride") or kernel),
            padding=_pair(given(node, 3, "padding", 0)),
            ceil_mode=bool(given(node, 4, "ceil_mode", False)),
            count_include_pad=True,
            layout="NCHW",
        )
    )
    scale = kernel[0] * kernel[1] / divisor
    return emit(relax.op.multiply(made, relax.const(scale, dtype_of(_first(node)))))


def _first(node: Any) -> Any:
    return node.args[0]


def _pair(value: Any) -> list[int]:
    found = list(value) if isinstance(value, list | tuple) else [value]
    return found * 2 if len(found) == 1 else found


def _largest(method: str) -> Converter:
    """Max pooling without the places of the largest numbers, which TVM does not compute."""

    def convert(node: Any, importer: Any) -> Any:
        if any(user.args[1] == 1 and user.users for user in node.users):
            raise NotImplementedError("the places of the largest numbers are not computed")
        return getattr(importer, method)(node)

    return convert


def _transposed(node: Any, importer: Any) -> Any:
    """``convolution``; the importer has no transposed one of three dimensions."""
    transposed, rank = bool(node.args[6]), len(extents(importer.env[node.args[0]]))
    if not transposed or rank != 5:  # noqa: PLR2004 - a batch of volumes with channels
        return importer._convolution(node)  # noqa: SLF001 - it has no other way in
    emit = importer.block_builder.emit
    data, weights = (importer.env[one] for one in node.args[:2])
    stride, padding, dilation = (_triple(node.args[place]) for place in (3, 4, 5))
    made = emit(
        relax.op.nn.conv3d_transpose(
            data,
            weights,
            strides=stride,
            padding=padding,
            output_padding=_triple(node.args[7]),
            dilation=dilation,
            groups=int(node.args[8]),
            data_layout="NCDHW",
            kernel_layout="IODHW",
        )
    )
    if node.args[2] is None:
        return made
    bias = tensor(importer, node.args[2])
    return emit(relax.op.add(made, emit(relax.op.reshape(bias, [1, -1, 1, 1, 1]))))


def _triple(value: Any) -> list[int]:
    found = list(value)
    return found * 3 if len(found) == 1 else found


CONVERTERS: dict[str, Converter] = {
    "upsample_nearest2d.vec": _nearest,
    "_upsample_bilinear2d_aa.default": _smoothed("bilinear"),
    "_upsample_bicubic2d_aa.default": _smoothed("bicubic"),
    "grid_sampler_2d.default": _grid_sample,
    "avg_pool2d.default": _average,
    "max_pool2d_with_indices.default": _largest("_max_pool2d_with_indices"),
    "max_pool3d_with_indices.default": _largest("_max_pool3d_with_indices"),
    "convolution.default": _transposed,
}
"""Converters by the name of the operator."""

"""Converters of ONNX's image operators that TVM's importer lacks or misreads.

Rare variants of ``Resize`` become a matrix product, or a selection of pixels, along each axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from operator import add
from typing import Any

import attrs
import numpy as np
from chameleon_tvm.api import INT8, UINT8, te, tirx
from numpy.typing import NDArray

from chameleon_networks._graph.constants import constant_of
from chameleon_networks._graph.relax_utils import (
    CUBIC,
    LINEAR,
    GridSample,
    relax,
    transposed_convolution,
)
from chameleon_networks._importers.onnx import nodes
from chameleon_networks._importers.onnx.nodes import Node, NodeError, dtype_of, scalar, shape_of

op = relax.op
_MAX_AXES = 3
"""Most spatial axes of a convolution or pooling."""
_PLANE_AXES = 2
"""Number of spatial axes of a deformable convolution."""


def _conv_transpose(node: Node) -> Any:
    """``ConvTranspose``; if the output's shape is given, the padding follows from it."""
    x, filters, options = node[0], node[1], node.attributes
    size, kernel = shape_of(x)[2:], shape_of(filters)[2:]
    rank = len(size)
    strides, dilations, pads = node.window(rank)
    added = list(options.get("output_padding") or [0] * rank)
    transform = options.get("auto_pad", "NOTSET")
    out = options.get("output_shape")
    if out is None and transform in {"SAME_UPPER", "SAME_LOWER"}:
        out = [extent * stride for extent, stride in zip(size, strides, strict=True)]
    for axis, wanted in enumerate(list(out or ())[-rank:]):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        total = strides[axis] * (size[axis] - 1) + added[axis] + reach - wanted
        # ``output_shape`` may exceed the output, but ``auto_pad`` adds nothing.
        added[axis] -= 0 if options.get("output_shape") is None else min(0, total)
        half = max(0, total) // 2
        first = half if transform == "SAME_UPPER" else max(0, total) - half
        pads[axis], pads[rank + axis] = first, max(0, total) - first
    if rank > _MAX_AXES:
        raise NodeError(f"it has {rank} spatial axes")
    y = transposed_convolution(
        x,
        filters,
        strides=strides,
        padding=pads,
        output_padding=added,
        dilation=dilations,
        groups=int(options.get("group", 1)),
    )
    y = node.emit(y)
    return y if node[2] is None else y + op.reshape(node[2], [1, -1, *[1] * rank])


def _col2im(node: Node) -> Any:
    """``Col2Im``: overlapping blocks are added up, as a transposed convolution with ones does."""
    columns, image, block = node[0], node.integers(1), node.integers(2)
    rank = len(image)
    strides, dilations, pads = node.window(rank)
    if rank > _MAX_AXES:
        raise NodeError(f"it has {rank} spatial axes")
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(block, dilations, strict=True)]
    counts, rests = [], []
    for axis, extent in enumerate(image):
        free = extent + pads[axis] + pads[rank + axis] - reach[axis]
        counts.append(free // strides[axis] + 1)
        rests.append(free % strides[axis])
    batch, width, _ = shape_of(columns)
    inside = math.prod(block)
    channels = width // inside
    x = op.reshape(columns, [batch * channels, inside, *counts])
    taps = np.eye(inside, dtype=dtype_of(columns)).reshape(inside, 1, *block)
    summed = transposed_convolution(
        node.emit(x),
        constant_of(taps),
        strides=strides,
        padding=pads,
        output_padding=rests,
        dilation=dilations,
    )
    return op.reshape(node.emit(summed), [batch, channels, *image])


def _roi_align(node: Node) -> Any:
    """``RoiAlign``: the mean of interpolated pixels in each bin, or the largest summand of them."""
    x, regions, options = node[0], node[1], node.attributes
    batches = node.emit(op.clip(node[2], 0, shape_of(x)[0] - 1))  # so that no index is out of range
    # Before version 16 there was no shift.
    transform = options.get("coordinate_transformation_mode", "output_half_pixel")
    aligned, scale = transform == "half_pixel", float(options["spatial_scale"])
    regions = node.emit(regions - scalar(0.5 / scale if aligned else 0.0, regions))
    samples = int(options["sampling_ratio"])
    counts = int(options["output_height"]), int(options["output_width"])
    if options["mode"] == "avg":
        of_batches = op.astype(op.expand_dims(batches, 1), dtype_of(regions))
        boxes = node.emit(op.concat([of_batches, regions], 1))
        means = op.vision.roi_align(x, boxes, counts, scale, samples, aligned, "NCHW", "avg")
        if samples or not aligned:
            return means
        # TVM's mean over a region without extent is undefined.
        ends, starts = (node.emit(op.strided_slice(regions, [1], [at], [at + 2])) for at in (2, 0))
        extents = node.emit(op.min(node.emit(ends - starts), 1))
        there = node.emit(extents > scalar(0.0, extents))
        there = node.emit(op.reshape(there, [shape_of(regions)[0], 1, 1, 1]))
        return op.where(there, node.emit(means), scalar(0.0, regions))
    if not samples:
        raise NodeError("it takes the largest of as many numbers as a region has")
    least = -math.inf if aligned else 1.0
    axes = [
        _bilinear_corners(node, regions, axis, count * samples, scale=scale, least=least)
        for axis, count in zip((1, 0), counts, strict=True)
    ]
    channels, height, width = shape_of(x)[1:]
    number = shape_of(regions)[0]
    pixels = node.emit(op.permute_dims(x, [0, 2, 3, 1]))
    flat = node.emit(op.reshape(pixels, [-1, channels]))
    first = op.astype(batches, "int64") * scalar(height * width, "int64")
    first = node.emit(op.reshape(first, [number, 1, 1]))
    summands = []
    for rows, row_weights in axes[0]:
        for columns, column_weights in axes[1]:
            at = op.expand_dims(rows, 2) * scalar(width, "int64") + op.expand_dims(columns, 1)
            weights = op.expand_dims(row_weights, 2) * op.expand_dims(column_weights, 1)
            sampled = op.take(flat, node.emit(at + first), 0)
            summands.append(node.emit(sampled * op.expand_dims(weights, 3)))
    largest = reduce(op.maximum, summands)
    inside = op.reshape(largest, [number, counts[0], samples, counts[1], samples, channels])
    return op.permute_dims(op.max(inside, [2, 4]), [0, 3, 1, 2])


def _bilinear_corners(
    node: Node, regions: Any, axis: int, count: int, *, scale: float, least: float
) -> list[tuple[Any, Any]]:
    """Two pixels around each sample along an axis, and weights, of shape (regions, samples)."""
    extent = shape_of(node[0])[3 - axis]
    scaled = node.emit(regions * scalar(scale, regions))
    start, end = (op.strided_slice(scaled, [1], [at], [at + 1]) for at in (axis, axis + 2))
    length = op.maximum(end - start, scalar(least, regions))
    steps = relax.const((np.arange(count) + 0.5)[None] / count, dtype_of(regions))
    coords = node.emit(start + length * steps)
    far = op.logical_or(coords < scalar(-1.0, coords), coords > scalar(extent, coords))
    inside = op.astype(op.logical_not(far), dtype_of(coords))
    inside_image = node.emit(op.clip(coords, 0.0, float(extent - 1)))
    low = node.emit(op.floor(inside_image))
    high = op.minimum(low + scalar(1.0, low), scalar(extent - 1, low))
    share = node.emit(inside_image - low)
    return [
        (node.emit(op.astype(at, "int64")), node.emit(weight * inside))
        for at, weight in ((low, scalar(1.0, share) - share), (high, share))
    ]


def _max_pool(node: Node) -> Any:
    """``MaxPool``; its second output has the places of the largest numbers in the whole tensor."""
    x, options = node[0], node.attributes
    images, block = shape_of(x)[2:], list(options["kernel_shape"])
    rank = len(images)
    steps, spread, pads = node.window(rank)
    transform = options.get("auto_pad", "NOTSET")
    if transform in {"SAME_UPPER", "SAME_LOWER"}:
        for axis, extent in enumerate(images):
            reach = (block[axis] - 1) * spread[axis] + 1
            total = max(0, (-(-extent // steps[axis]) - 1) * steps[axis] + reach - extent)
            first = total // 2 if transform == "SAME_UPPER" else total - total // 2
            pads[axis], pads[rank + axis] = first, total - first
    if node.outputs == 1:
        if transform != "SAME_LOWER" or rank > _MAX_AXES:
            return NotImplemented
        pool = getattr(op.nn, f"max_pool{rank}d")
        return pool(x, block, steps, pads, spread)
    windows = []
    for axis, extent in enumerate(images):
        room = extent + pads[axis] + pads[rank + axis] - (block[axis] - 1) * spread[axis] - 1
        count = (math.ceil if options.get("ceil_mode") else math.floor)(room / steps[axis]) + 1
        # No window begins after the image.
        count -= (count - 1) * steps[axis] >= extent + pads[axis]
        first = (np.arange(count) * steps[axis] - pads[axis])[:, None]
        last = first + (extent - 1 - first) // spread[axis] * spread[axis]
        at = first + np.arange(block[axis]) * spread[axis]
        # An index outside of the image is replaced by another one of the same window.
        windows.append(np.minimum(np.where(at < 0, first % spread[axis], at), last))
    grids = np.meshgrid(*(window.ravel() for window in windows), indexing="ij")
    shape = [extent for window in windows for extent in window.shape]
    order = [*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)]
    sampled, named = (
        np.ravel_multi_index(grids, images, order=dtype)
        .reshape(shape)
        .transpose(order)
        .reshape(-1, math.prod(block))
        for dtype in ("C", "F" if options.get("storage_order") else "C")
    )
    batch, channels = shape_of(x)[:2]
    flat = node.emit(op.reshape(x, [batch * channels, -1]))
    numbers = node.emit(op.take(flat, relax.const(sampled, "int64"), 1))
    largest = node.emit(op.argmax(numbers, 2))
    ahead = relax.const(np.arange(len(named))[None] * named.shape[1], "int64")
    local = op.take(relax.const(named.ravel(), "int64"), largest + ahead, 0)
    before = np.arange(batch * channels)[:, None] * math.prod(images)
    local = local + relax.const(before, "int64")
    outs = [batch, channels, *(len(window) for window in windows)]
    return [op.reshape(op.max(numbers, 2), outs), op.reshape(local, outs)]


def _max_unpool(node: Node) -> Any:
    """``MaxUnpool``; a given output shape appends zeros to the shape that other attributes give."""
    x, out = node[0], node.known(2)
    shape, block = shape_of(x), list(node.attributes["kernel_shape"])
    rank = len(block)
    steps, _, pads = node.window(rank)
    for axis, size in enumerate(block):
        shape[axis + 2] = (shape[axis + 2] - 1) * steps[axis] - pads[axis] - pads[rank + axis]
        shape[axis + 2] += size
    zeros = relax.const(np.zeros(math.prod(shape)), dtype_of(x))
    coords, numbers = (node.emit(op.reshape(value, [-1])) for value in (node[1], x))
    y = op.reshape(node.emit(op.scatter_elements(zeros, coords, numbers)), shape)
    more = [int(a) - b for a, b in zip(shape if out is None else out, shape, strict=True)]
    if min(more) < 0:
        raise NodeError("its output is smaller than what it puts there")
    widths = [width for extra in more for width in (0, extra)]
    return op.nn.pad(node.emit(y), widths) if any(more) else y


def _deform_conv(node: Node) -> Any:
    """``DeformConv``: a convolution over pixels that are interpolated at computed places."""
    x, filters, offsets, bias, mask = (node[index] for index in range(5))
    images, block = shape_of(x)[2:], shape_of(filters)[2:]
    if len(images) != _PLANE_AXES:
        raise NodeError(f"it has {len(images)} spatial axes")
    steps, spread, pads = node.window(_PLANE_AXES)
    groups = int(node.attributes.get("offset_group", 1))
    batch, channels = shape_of(x)[:2]
    taps, outs = math.prod(block), shape_of(offsets)[2:]
    corners = np.indices([*block, *outs])
    regular = [
        corners[axis] * spread[axis] + corners[_PLANE_AXES + axis] * steps[axis] - pads[axis]
        for axis in range(_PLANE_AXES)
    ]
    shifts = op.reshape(offsets, [batch * groups, taps, _PLANE_AXES, *outs])
    grid = []
    # ``grid_sample`` takes coordinates from -1 to 1 between the edges, columns first.
    for axis in reversed(range(_PLANE_AXES)):
        shift = op.squeeze(op.strided_slice(shifts, [2], [axis], [axis + 1]), [2])
        coords = regular[axis].reshape(1, taps, *outs)
        ours = relax.const((2.0 * coords + 1.0) / images[axis] - 1.0, dtype_of(x))
        grid.append(shift * scalar(2.0 / images[axis], x) + ours)
    coords = op.reshape(op.stack(grid, 1), [batch * groups, _PLANE_AXES, taps * outs[0], outs[1]])
    parts = op.reshape(x, [batch * groups, channels // groups, *images])
    sampled = op.image.grid_sample(node.emit(parts), node.emit(coords), padding_mode="zeros")
    columns = op.reshape(node.emit(sampled), [batch, groups, -1, taps, math.prod(outs)])
    if mask is not None:
        shares = op.reshape(mask, [batch, groups, 1, taps, math.prod(outs)])
        columns = columns * shares
    columns = node.emit(op.reshape(columns, [batch, channels, taps, math.prod(outs)]))
    rows = op.reshape(filters, [*shape_of(filters)[:2], taps, 1])
    y = op.nn.conv2d(columns, node.emit(rows), groups=int(node.attributes.get("group", 1)))
    y = op.reshape(node.emit(y), [batch, -1, *outs])
    return y if bias is None else y + op.reshape(bias, [1, -1, 1, 1])


def _grid_sample(node: Node) -> Any:
    """``GridSample``, whose methods have other names since version 20."""
    x, grid, options = node[0], node[1], node.attributes
    method = {"linear": LINEAR, "cubic": CUBIC}.get(options["mode"], options["mode"])
    axes = len(shape_of(x)) - _SPATIAL
    if method == CUBIC and axes != _PLANE_AXES:
        raise NodeError("it interpolates volumes by cubic functions")
    sampling = GridSample(
        method=method,
        padding=options["padding_mode"],
        align_corners=bool(options["align_corners"]),
        axes=axes,
        moves_places=False,
    )
    return sampling.apply(node.builder, x, grid)


def _affine_grid(node: Node) -> Any:
    """``AffineGrid``: a product with coordinates of an even grid; it may have one row or column."""
    theta, sizes = node[0], node.integers(1)[2:]
    aligned = node.attributes.get("align_corners")
    steps = [np.linspace(-1, 1, n) if aligned else (2 * np.arange(n) + 1) / n - 1 for n in sizes]
    even = [*np.meshgrid(*steps, indexing="ij")[::-1], np.ones(sizes)]
    points = np.stack(even, -1).reshape(-1, len(sizes) + 1)
    turned = node.emit(op.permute_dims(theta, [0, 2, 1]))
    grid = op.matmul(relax.const(points, dtype_of(theta)), turned)
    return op.reshape(node.emit(grid), [shape_of(theta)[0], *sizes, len(sizes)])


_COORDINATES_SINCE = 11
"""The version of the standard that introduced several coordinate transformations."""
_CROP = "tf_crop_and_resize"
_TRANSFORMS_TVM_LACKS = frozenset({_CROP, "half_pixel_symmetric", "tf_half_pixel_for_nn"})
"""Coordinate transformations that TVM lacks, or also applies to axes that keep their extent."""


@attrs.frozen(kw_only=True)
class _ResizedAxis:
    """How ``Resize`` changes one axis.

    Attributes:
        size: The extent of the input.
        out: The extent of the output.
        scale: The output's extent over the input's, before the output's extent is rounded.
        crop: The begin and the end of the resized part of the input, as fractions of the input.
    """

    size: int
    out: int
    scale: float
    crop: tuple[float, float]

    def coords(self, transform: str, dtype: str = "float32") -> NDArray[Any]:
        """The input coordinate of each output pixel, by default in float32 as in onnxruntime."""
        # With ``align_corners`` and scales, the output's extent is rounded first, as in
        # onnxruntime.
        at: NDArray[Any] = np.arange(self.out, dtype=dtype)
        size, scale = self.size, self.scale
        if transform == _CROP:
            begin, end = self.crop
            if self.out == 1:
                return np.full(1, 0.5 * (begin + end) * (size - 1))
            return begin * (size - 1) + at * (end - begin) * (size - 1) / (self.out - 1)
        if transform == "asymmetric":
            return at / scale
        if transform == "align_corners":
            return at * (size - 1) / max(1, self.out - 1)
        if transform == "half_pixel_symmetric":  # onnxruntime rounds the shift, and then the sum
            kept, extent, factor = np.array([self.out, size, scale], dtype)
            shift = extent / 2 * (1 - kept / (factor * extent))
            places = np.float64(shift) + (at + 0.5).astype(np.float64) / np.float64(factor) - 0.5
            return np.asarray(places.astype(dtype))
        shift = 0.0 if transform == "tf_half_pixel_for_nn" else -0.5
        is_first = transform == "pytorch_half_pixel" and self.out == 1
        return np.zeros(1) if is_first else np.asarray((at + 0.5) / scale + shift)


_NEAREST: Mapping[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "round_prefer_floor": lambda coords: np.ceil(coords - 0.5),
    "round_prefer_ceil": lambda coords: np.floor(coords + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _linear(distance: NDArray[Any], _a: float) -> NDArray[Any]:
    return np.asarray(np.maximum(0.0, 1.0 - np.abs(distance)))


def _cubic(distance: NDArray[Any], a: float) -> NDArray[Any]:
    t = np.abs(distance)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < _KERNELS["cubic"][1], far, 0.0))


_KERNELS = {"linear": (_linear, 1), "cubic": (_cubic, 2)}
"""For each interpolation, the function from a distance to a weight, and its largest distance."""


def _interpolation_matrix(
    axis: _ResizedAxis, coords: NDArray[Any], options: Mapping[str, Any]
) -> NDArray[Any]:
    """The matrix (outputs, inputs) with the weight of each input pixel in each output pixel."""
    kernel, reach = _KERNELS[options["mode"]]
    a = float(options.get("cubic_coeff_a", -0.75))
    smooth = bool(options.get("antialias")) and axis.scale < 1
    scale = axis.scale if smooth else 1.0
    half = math.ceil(reach / scale)
    taps = np.floor(coords)[:, None] + np.arange(1 - half, half + 1)
    weights = kernel((taps - coords[:, None]) * scale, a)
    if options.get("exclude_outside"):
        weights = np.where((taps >= 0) & (taps < axis.size), weights, 0.0)
    weights = weights / weights.sum(1, keepdims=True)
    matrix = np.zeros([axis.out, axis.size])
    inside = np.clip(taps, 0, axis.size - 1).astype(np.int64)
    np.add.at(matrix, (np.arange(axis.out)[:, None], inside), weights)
    return matrix


def _resized_axes(node: Node, chosen: Sequence[int]) -> dict[int, _ResizedAxis]:
    """How each of the chosen axes is resized, by the number of the axis."""
    shape, count = shape_of(node[0]), len(chosen)
    late = node.op_type == "Resize" and node.opset >= _COORDINATES_SINCE
    if node.op_type == "Upsample" and "scales" in node.attributes:
        scales: Any = node.attributes["scales"]
        sizes = None
    else:
        scales, sizes = node.known(2 if late else 1), node.known(3) if late else None
    roi = node.known(1) if late else None
    crops = [0.0] * count + [1.0] * count if roi is None else roi.tolist()
    extents = [shape[axis] for axis in chosen]
    if sizes is not None:
        out = [int(size) for size in sizes]
        ratios = [size / extent for size, extent in zip(out, extents, strict=True)]
        policy = str(node.attributes.get("keep_aspect_ratio_policy", "stretch"))
        if policy != "stretch":
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            ratios = [ratio] * count
            out = [math.floor(ratio * extent + 0.5) for extent in extents]
    else:
        ratios = [float(scale) for scale in (() if scales is None else scales)]
        # onnxruntime multiplies in float32, so that 2.8 times 10 is 28.
        out = [int(np.float32(r) * np.float32(n)) for r, n in zip(ratios, extents, strict=True)]
    return {
        axis: _ResizedAxis(
            size=size, out=new, scale=ratio, crop=(crops[index], crops[count + index])
        )
        for index, (axis, size, new, ratio) in enumerate(
            zip(chosen, extents, out, ratios, strict=True)
        )
    }


_RESIZE_RANKS = (3, 4, 5)
"""Ranks of tensors that TVM can resize."""
_SPATIAL = 2
"""The number of the first spatial axis."""


def _resize(node: Node) -> Any:
    value, options = node[0], dict(node.attributes)
    shape = shape_of(value)
    rank = len(shape)
    dtype = np.dtype(dtype_of(value))
    is_rounded = options["mode"] != "nearest" and dtype.kind != "f"
    wide = dtype.name == "float64"  # onnxruntime and TVM place pixels in float32
    chosen = [nodes.normalize_axis(axis, rank) for axis in options.get("axes") or range(rank)]
    axes = _resized_axes(node, chosen)
    if node.opset < _COORDINATES_SINCE or node.op_type == "Upsample":
        options["coordinate_transformation_mode"] = "asymmetric"
    elif rank in _RESIZE_RANKS and _is_supported_by_tvm(options, axes) and not (is_rounded or wide):
        return NotImplemented
    out = [axes[axis].out if axis in axes else extent for axis, extent in enumerate(shape)]
    if 0 in out:
        return relax.const(np.zeros(out), dtype_of(value))
    if out == shape:
        return value
    # In linear mode, onnxruntime truncates. The standard's evaluator rounds what it lacks.
    linear = options["mode"] == "linear" and not options.get("antialias")
    is_cut = linear and dtype.name in _CUT and _interpolated_axes(rank, axes) is not None
    places = "float64" if wide or (is_rounded and dtype.name not in _CUT) else "float32"
    transform = str(options["coordinate_transformation_mode"])
    if is_cut:
        value = node.emit(_interpolate_integers(node, value, axes, transform))
    elif is_rounded:
        # In float64, few results are wrongly rounded at a half.
        value = node.emit(op.astype(value, "float64"))
    outsides: dict[int, NDArray[Any]] = {}
    for number, axis in axes.items():
        if axis.scale == 1:
            continue
        coords = axis.coords(transform, places)
        outsides[number] = (transform == _CROP) & ((coords < 0) | (coords > axis.size - 1))
        if not (is_cut or (options.get("antialias") and axis.out == axis.size)):
            value = node.emit(_resize_axis(node, value, number, axis, coords))
    return _cast_result(node, _extrapolate(node, value, outsides), dtype)


def _cast_result(node: Node, value: Any, dtype: np.dtype[Any]) -> Any:
    """The resized numbers in the dtype of the image."""
    if dtype_of(value) == dtype.name:
        return value
    limits = np.iinfo(dtype)
    return op.astype(op.clip(node.emit(op.round(value)), limits.min, limits.max), dtype.name)


_CUT = (INT8, UINT8, "int32")
_CHANNELS_LAST = [1, 2]
_FIXED = 1 << 10
"""Unit of weights of 8-bit images whose channels come last."""


def _interpolated_axes(rank: int, axes: Mapping[int, _ResizedAxis]) -> list[int] | None:
    """The axes along which onnxruntime interpolates linearly, or None if it refuses to."""
    resized = {number for number, axis in axes.items() if axis.scale != 1}
    planes = {2: [[0, 1]], 3: [[0, 1, 2]], 4: [[2, 3], _CHANNELS_LAST], 5: [[2, 3, 4]]}
    return next((each for each in planes.get(rank, ()) if resized <= {*each}), None)


def _interpolate_integers(
    node: Node, value: Any, axes: Mapping[int, _ResizedAxis], transform: str
) -> Any:
    """Interpolate integers linearly, with onnxruntime's order of roundings."""
    shape, dtype = shape_of(value), dtype_of(value)
    chosen = _interpolated_axes(len(shape), axes) or []
    fixed = chosen == _CHANNELS_LAST and dtype in (INT8, UINT8)
    wide, out, tables = "int32" if fixed else "float32", list(shape), []
    for number in chosen:
        size = shape[number]
        axis = axes.get(number)
        if axis is None or axis.scale == 1:  # a crop is left out then
            axis = _ResizedAxis(size=size, out=size, scale=1.0, crop=(0.0, 1.0))
        out[number] = axis.out
        coords = np.clip(axis.coords(transform).astype(np.float32), 0, size - 1)
        low = coords.astype(np.int32)
        places = np.stack([low, np.minimum(low + 1, size - 1)])
        unit = _FIXED if fixed else 1
        weights = np.abs(
            (coords * np.float32(unit)).astype(wide) - (places[::-1] * unit).astype(wide)
        )
        weights[:, places[0] == places[1]] = unit / 2
        tables += [relax.const(places, "int32"), relax.const(weights, wide)]

    def interpolated(source: te.Tensor, *tables: te.Tensor) -> te.Tensor:
        def term(corner: Sequence[int], *at: Any) -> Any:
            place, weight = list(at), tirx.const(1, wide)
            for number, side, places, weights in reversed(
                [*zip(chosen, corner, tables[::2], tables[1::2], strict=True)]
            ):
                place[number] = places(side, at[number])
                weight = weight * weights(side, at[number])
            return weight * source(*place).astype(wide)

        # A product in an array of its own is rounded. The corners of the last axis change first.
        corners = itertools.product(range(2), repeat=len(chosen))
        terms = [te.compute(out, partial(term, corner), name="term") for corner in corners]

        def result(*at: Any) -> Any:
            total = reduce(add, (each(*at) for each in terms))
            unit = tirx.const(_FIXED ** len(chosen), "int32")
            return (tirx.truncdiv(total, unit) if fixed else total).astype(dtype)

        return te.compute(out, result, name="interpolated")

    return node.builder.call_te(interpolated, value, *tables, primfunc_name_hint="resize")


def _resize_axis(
    node: Node, value: Any, number: int, axis: _ResizedAxis, coords: NDArray[Any]
) -> Any:
    """Resize one axis of a tensor to pixels with the given input ``coords``."""
    options = node.attributes
    if options["mode"] == "nearest":
        # Early versions have no ``nearest_mode``.
        early = "ceil" if axis.scale < 1 else "floor"
        nearest = _NEAREST[str(options.get("nearest_mode", early))](coords)
        sampled = np.clip(nearest, 0, axis.size - 1).astype(np.int64)
        return op.take(value, relax.const(sampled), number)
    matrix = relax.const(_interpolation_matrix(axis, coords, options).T, dtype_of(value))
    rank = len(shape_of(value))
    order = [*(other for other in range(rank) if other != number), number]
    moved = node.emit(op.matmul(op.permute_dims(value, order), matrix))
    return op.permute_dims(moved, np.argsort(order).tolist())


def _extrapolate(node: Node, value: Any, outsides: Mapping[int, NDArray[Any]]) -> Any:
    """Set the pixels that are resized from outside of the image to the extrapolation value."""
    rank = len(shape_of(value))
    for number, outside in outsides.items():
        if outside.any():
            mask = outside.reshape([-1 if axis == number else 1 for axis in range(rank)])
            constant, dtype = np.array(node.attributes["extrapolation_value"]), dtype_of(value)
            wide = constant if "float" in dtype else constant.astype(np.int64)  # integers wrap
            beyond = relax.const(wide.astype(dtype), dtype)
            value = node.emit(op.where(relax.const(mask), beyond, value))
    return value


def _is_supported_by_tvm(options: Mapping[str, Any], axes: Mapping[int, _ResizedAxis]) -> bool:
    """Whether TVM's kernels compute a ``Resize`` as onnxruntime does."""
    special = ("antialias", "exclude_outside", "axes")
    return (
        not any(options.get(name) for name in special)
        and options.get("keep_aspect_ratio_policy", "stretch") == "stretch"
        and options["coordinate_transformation_mode"] not in _TRANSFORMS_TVM_LACKS
        and all(axis.out == axis.scale * axis.size for axis in axes.values())
        and all(axis.out == axis.size for index, axis in axes.items() if index < _SPATIAL)
    )


IMAGES: Mapping[str, Callable[[Node], Any]] = {
    "AffineGrid": _affine_grid,
    "ConvTranspose": _conv_transpose,
    "Col2Im": _col2im,
    "DeformConv": _deform_conv,
    "GridSample": _grid_sample,
    "MaxPool": _max_pool,
    "MaxUnpool": _max_unpool,
    "RoiAlign": _roi_align,
    "Resize": _resize,
    "Upsample": _resize,
}
"""Converters by operator. If one returns ``NotImplemented``, TVM converts the node."""

"""Converters of ONNX's operators on images that TVM's importer lacks or reads as others.

``Resize`` and ``Upsample`` are products with a matrix for each axis, or places that are taken. TVM
has kernels of its own for ordinary ones; others follow the standard to the letter here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_networks.graph.relaxed import relax
from chameleon_networks.importers.onnx.nodes import (
    Node,
    Unsupported,
    dtype_of,
    positive,
    scalar,
    shape_of,
)

op = relax.op
_MOST_AXES = 3
"""Spatial axes of a transposed convolution."""


def _transposed(node: Node) -> Any:
    """Pads follow from the shape of the output if that is given."""
    x, filters, given = node[0], node[1], node.attributes
    size, kernel = shape_of(x)[2:], shape_of(filters)[2:]
    rank = len(size)
    strides, dilations = (list(given.get(name) or [1] * rank) for name in ("strides", "dilations"))
    added = list(given.get("output_padding") or [0] * rank)
    pads, way = list(given.get("pads") or [0] * 2 * rank), given.get("auto_pad", "NOTSET")
    out = given.get("output_shape")
    if out is None and way in {"SAME_UPPER", "SAME_LOWER"}:
        out = [extent * stride for extent, stride in zip(size, strides, strict=True)]
    for axis, wanted in enumerate(list(out or ())[-rank:]):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        total = strides[axis] * (size[axis] - 1) + added[axis] + reach - wanted
        # What is wanted may be more than there is.
        added[axis] -= min(0, total)
        half = max(0, total) // 2
        first = half if way == "SAME_UPPER" else max(0, total) - half
        pads[axis], pads[rank + axis] = first, max(0, total) - first
    if rank > _MOST_AXES:
        raise Unsupported(f"it has {rank} spatial axes")
    convolve = getattr(op.nn, f"conv{rank}d_transpose")
    # Zeros behind an output that are more than a stride are no part of a convolution.
    fits = [min(extra, stride - 1) for extra, stride in zip(added, strides, strict=True)]
    y = node.emit(convolve(x, filters, strides, pads, fits, dilations, int(given.get("group", 1))))
    if fits != added:
        widths = [0, 0, 0, 0]
        for extra, fit in zip(added, fits, strict=True):
            widths += [0, extra - fit]
        y = node.emit(op.nn.pad(y, widths))
    return y if node[2] is None else op.add(y, op.reshape(node[2], [1, -1, *[1] * rank]))


def _columns_to_image(node: Node) -> Any:
    """Blocks are added up where they overlap, as a transposed convolution of ones adds them."""
    columns, image, block = node[0], node.integers(1), node.integers(2)
    given, rank = node.attributes, len(image)
    strides, dilations = (list(given.get(name) or [1] * rank) for name in ("strides", "dilations"))
    pads = list(given.get("pads") or [0] * 2 * rank)
    if rank > _MOST_AXES:
        raise Unsupported(f"it has {rank} spatial axes")
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
    convolve = getattr(op.nn, f"conv{rank}d_transpose")
    whole = convolve(node.emit(x), relax.const(taps), strides, pads, rests, dilations)
    return op.reshape(node.emit(whole), [batch, channels, *image])


def _aligned_regions(node: Node) -> Any:
    if node.attributes.get("mode") == "max":
        raise Unsupported("it takes the largest number of a region")
    return NotImplemented


IMAGES: Mapping[str, Callable[[Node], Any]] = {
    "ConvTranspose": _transposed,
    "Col2Im": _columns_to_image,
    "RoiAlign": _aligned_regions,
}
"""Converters by kind of node; ``NotImplemented`` leaves a node to TVM's."""


_COORDINATES_SINCE = 11
"""The version of the standard that has ways to map coordinates; before it was one."""


@attrs.frozen(kw_only=True)
class _Axis:
    """How one axis is resized.

    Attributes:
        size: of the input.
        out: of the output.
        scale: of the output to the input, before the output's size is rounded.
        crop: begin and end of the part of the input that is resized, as shares of it.
    """

    size: int
    out: int
    scale: float
    crop: tuple[float, float]

    def places(self, way: str) -> NDArray[Any]:
        """The coordinate in the input of each output."""
        at: NDArray[Any] = np.arange(self.out, dtype=np.float64)
        size, scale = self.size, self.scale
        whole = scale * size
        if way == "tf_crop_and_resize":
            begin, end = self.crop
            if self.out == 1:
                return np.full(1, 0.5 * (begin + end) * (size - 1))
            return (begin + at * (end - begin) / (self.out - 1)) * (size - 1)
        if way == "asymmetric":
            return at / scale
        if way == "align_corners":
            return at * ((size - 1) / (whole - 1) if whole != 1 else 0.0)
        shift = 0.0
        if way == "half_pixel_symmetric":
            shift = size / 2 * (1 - self.out / whole)
        elif way == "pytorch_half_pixel" and self.out == 1:
            return np.zeros(1)
        places: NDArray[Any] = (at + 0.5) / scale - 0.5 + shift
        return places


_NEAREST: Mapping[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "round_prefer_floor": lambda places: np.ceil(places - 0.5),
    "round_prefer_ceil": lambda places: np.floor(places + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _linear(distance: NDArray[Any], _a: float) -> NDArray[Any]:
    weights: NDArray[Any] = np.maximum(0.0, 1.0 - np.abs(distance))
    return weights


def _cubic(distance: NDArray[Any], a: float) -> NDArray[Any]:
    t = np.abs(distance)
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return np.where(t <= 1, near, np.where(t < _KERNELS["cubic"][1], far, 0.0))


_KERNELS = {"linear": (_linear, 1), "cubic": (_cubic, 2)}
"""Weights by distance, and how far they reach."""


def _matrix(axis: _Axis, places: NDArray[Any], attributes: Mapping[str, Any]) -> NDArray[Any]:
    """The weight of each input in each output."""
    kernel, reach = _KERNELS[attributes["mode"]]
    a = float(attributes.get("cubic_coeff_a", -0.75))
    smooth = bool(attributes.get("antialias")) and axis.scale < 1
    scale = axis.scale if smooth else 1.0
    half = math.ceil(reach / scale)
    taps = np.floor(places)[:, None] + np.arange(1 - half, half + 1)
    weights = kernel((taps - places[:, None]) * scale, a)
    if attributes.get("exclude_outside"):
        weights = np.where((taps >= 0) & (taps < axis.size), weights, 0.0)
    weights = weights / weights.sum(1, keepdims=True)
    matrix = np.zeros([axis.out, axis.size])
    inside = np.clip(taps, 0, axis.size - 1).astype(np.int64)
    np.add.at(matrix, (np.arange(axis.out)[:, None], inside), weights)
    return matrix


def _axes(node: Node, chosen: Sequence[int]) -> dict[int, _Axis]:
    """How each of the axes that are named is resized, by its number."""
    shape, count = shape_of(node[0]), len(chosen)
    late = node.kind == "Resize" and node.opset >= _COORDINATES_SINCE
    if node.kind == "Upsample" and "scales" in node.attributes:
        scales: Any = node.attributes["scales"]
        sizes = None
    else:
        scales, sizes = node.known(2 if late else 1), node.known(3) if late else None
    roi = node.known(1) if late else None
    crops = [0.0] * count + [1.0] * count if roi is None or not roi.size else roi.tolist()
    extents = [shape[axis] for axis in chosen]
    if sizes is not None and sizes.size:
        out = [int(size) for size in sizes]
        ratios = [size / extent for size, extent in zip(out, extents, strict=True)]
        policy = str(node.attributes.get("keep_aspect_ratio_policy", "stretch"))
        if policy != "stretch":
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            ratios = [ratio] * count
            out = [math.floor(ratio * extent + 0.5) for extent in extents]
    else:
        ratios = [float(scale) for scale in (() if scales is None else scales)]
        out = [math.floor(r * extent) for r, extent in zip(ratios, extents, strict=True)]
    return {
        axis: _Axis(size=size, out=new, scale=ratio, crop=(crops[place], crops[count + place]))
        for place, (axis, size, new, ratio) in enumerate(
            zip(chosen, extents, out, ratios, strict=True)
        )
    }


_RESIZED_BY_TVM = (3, 4, 5)
"""Axes of a tensor, batch and channels included."""
_SPATIAL = 2
"""The first axis behind them."""


def _resize(node: Node) -> Any:
    value, given = node[0], dict(node.attributes)
    shape = shape_of(value)
    rank = len(shape)
    chosen = [positive(axis, rank) for axis in given.get("axes") or range(rank)]
    axes = _axes(node, chosen)
    if node.opset < _COORDINATES_SINCE or node.kind == "Upsample":
        given.update(coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    elif rank in _RESIZED_BY_TVM and _is_ordinary(given, axes):
        return NotImplemented
    if given["mode"] != "nearest" and np.dtype(dtype_of(value)).kind != "f":
        raise Unsupported(f"it interpolates numbers of {dtype_of(value)}")
    out = [axes[axis].out if axis in axes else extent for axis, extent in enumerate(shape)]
    if 0 in out:
        return relax.const(np.zeros(out), dtype_of(value))
    way = str(given["coordinate_transformation_mode"])
    outsides: dict[int, NDArray[Any]] = {}
    for number, axis in axes.items():
        places = axis.places(way)
        if way == "tf_crop_and_resize":
            outsides[number] = (places < 0) | (places > axis.size - 1)
        elif axis.out == axis.size and axis.scale == 1:
            continue
        if given["mode"] == "nearest":
            nearest = _NEAREST[str(given["nearest_mode"])](places)
            taken = np.clip(nearest, 0, axis.size - 1).astype(np.int64)
            value = node.emit(op.take(value, relax.const(taken), number))
            continue
        matrix = relax.const(_matrix(axis, places, given).T, dtype_of(value))
        order = [*(other for other in range(rank) if other != number), number]
        moved = node.emit(op.matmul(op.permute_dims(value, order), matrix))
        value = node.emit(op.permute_dims(moved, np.argsort(order).tolist()))
    return _with_outsides(node, value, outsides)


def _with_outsides(node: Node, value: Any, outsides: Mapping[int, NDArray[Any]]) -> Any:
    """Numbers that are resized from outside of the image are one value."""
    rank = len(shape_of(value))
    for number, outside in outsides.items():
        if outside.any():
            mask = outside.reshape([-1 if axis == number else 1 for axis in range(rank)])
            beyond = scalar(float(node.attributes["extrapolation_value"]), value)
            value = node.emit(op.where(relax.const(mask), beyond, value))
    return value


def _is_ordinary(given: Mapping[str, Any], axes: Mapping[int, _Axis]) -> bool:
    """Whether TVM's kernels follow the standard."""
    special = ("antialias", "exclude_outside", "axes")
    return (
        not any(given.get(name) for name in special)
        and given.get("keep_aspect_ratio_policy", "stretch") == "stretch"
        and given["coordinate_transformation_mode"] != "half_pixel_symmetric"
        and all(axis.out == axis.scale * axis.size for axis in axes.values())
        and all(axis.out == axis.size for place, axis in axes.items() if place < _SPATIAL)
    )


RESIZING: Mapping[str, Callable[[Node], Any]] = {"Resize": _resize, "Upsample": _resize}
"""Converters by kind of node; ``NotImplemented`` leaves a node to TVM's."""

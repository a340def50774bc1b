"""Converters of ONNX's operators on images that TVM's importer lacks or reads as others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from chameleon_networks.graph.relaxed import relax
from chameleon_networks.importers.onnx.nodes import Node, Unsupported, dtype_of, shape_of

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

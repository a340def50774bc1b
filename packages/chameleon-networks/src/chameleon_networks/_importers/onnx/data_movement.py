"""Converters of ONNX operators that reshape, move and select elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from chameleon_core.api import words

from chameleon_networks._graph import counted
from chameleon_networks._graph.constants import constant_of
from chameleon_networks._graph.relax_utils import relax
from chameleon_networks._importers.onnx import nodes
from chameleon_networks._importers.onnx.nodes import Node, NodeError, dtype_of, scalar, shape_of

op = relax.op


def _unsqueeze(node: Node) -> Any:
    shape = shape_of(node[0])
    rank, left = len(shape) + len(node.axes), iter(shape)
    axes = {nodes.normalize_axis(axis, rank) for axis in node.axes}
    if node.counted_axes():  # their places do not follow from the shapes
        return op.expand_dims(node[0], sorted(axes))
    return op.reshape(node[0], [1 if axis in axes else next(left) for axis in range(rank)])


def _reshape(node: Node) -> Any:
    shape, target = shape_of(node[0]), node.attributes.get("shape") or node.integers(1)
    if not node.attributes.get("allowzero"):
        target = [shape[at] if extent == 0 else extent for at, extent in enumerate(target)]
    if 0 in target:
        # Relax takes a 0 for the old extent.
        return relax.const(np.zeros(target), dtype_of(node[0]))
    return op.reshape(node[0], list(target))


def _gather(node: Node) -> Any:
    """``Gather`` at constant places; TVM's importer counts negative ones in the network."""
    if not nodes.is_constant(node[1]):
        return NotImplemented
    shape, positions = shape_of(node[0]), node.value(1)
    axis = nodes.normalize_axis(int(node.attributes.get("axis", 0)), len(shape))
    positions = np.where(positions < 0, positions + shape[axis], positions)
    return op.take(node[0], constant_of(positions), axis)


def _split(node: Node) -> Any:
    """``Split``; TVM's importer takes the rest for the last part, whatever its size should be."""
    axis, count = int(node.attributes.get("axis", 0)), node.outputs
    extent = shape_of(node[0])[nodes.normalize_axis(axis, len(shape_of(node[0])))]
    sizes = list(node.attributes.get("split") or ([] if node[1] is None else node.integers(1)))
    if not sizes:
        full_parts = int(node.attributes.get("num_outputs", count)) - 1
        most = -(-extent // (full_parts + 1))
        sizes = [most] * full_parts + [extent - most * full_parts]
    if len(sizes) != count or min(sizes) < 0 or sum(sizes) != extent:
        parts = ", ".join(map(str, sizes))
        raise NodeError(
            f"{words.counted(count, 'output')} cannot be parts of {parts} of the {extent} elements "
            f"along axis {axis}"
        )
    return NotImplemented


def _slice(node: Node) -> Any:
    x = node[0]
    shape = shape_of(x)
    if "starts" in node.attributes:
        starts, ends = node.attributes["starts"], node.attributes["ends"]
        axes, steps = node.attributes.get("axes"), None
    else:
        starts, ends = node.integers(1), node.integers(2)
        axes, steps = (None if node[at] is None else node.integers(at) for at in (3, 4))
    axes = [nodes.normalize_axis(int(axis), len(shape)) for axis in (axes or range(len(starts)))]
    begins, stops, strides, reversed_axes = {}, {}, {}, []
    for axis, start, end, step in zip(axes, starts, ends, steps or [1] * len(axes), strict=True):
        extent = shape[axis]
        if axis in node.counted_axes() and min(start, end) < 0:
            raise NodeError(f"{counted.COUNTED_SIZE}, and it counts elements from the last one")
        # Unlike in Python, a backward slice from before the first index begins at that index.
        positions = range(*slice(max(start, -extent), end, step).indices(extent))
        if step < 0:
            # The same indices from the front; the result is reversed afterwards.
            positions = positions[::-1]
            reversed_axes.append(axis)
        first = positions[0] if positions else 0
        begins[axis], strides[axis] = first, abs(step)
        stops[axis] = positions[-1] + 1 if positions else first
    cut = op.strided_slice(
        x, list(begins), list(begins.values()), list(stops.values()), list(strides.values())
    )
    for axis in reversed_axes:
        cut = op.flip(cut, axis)
    return cut


def _pad(node: Node) -> Any:
    """``Pad`` by more than one mirror image, or by negative pads, which crop before others pad."""
    x, mode = node[0], str(node.attributes.get("mode", "constant"))
    if mode not in {"reflect", "wrap"} or node.attributes.get("pads"):
        return NotImplemented
    shape, pads = shape_of(x), node.integers(1)
    axes = range(len(shape)) if node[3] is None else node.integers(3)
    padded_axes = [
        (nodes.normalize_axis(axis, len(shape)), pair)
        for axis, *pair in zip(axes, pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True)
    ]
    if all(0 <= pad < shape[axis] for axis, pair in padded_axes for pad in pair):
        return NotImplemented
    for axis, (before, after) in padded_axes:
        kept = np.arange(max(0, -before), shape[axis] + min(0, after))
        added = [max(0, before), max(0, after)]
        positions = np.pad(kept, added, mode)  # type: ignore[call-overload]
        x = op.take(x, relax.const(positions), axis)
    return x


def _nonzero_places(node: Node, index: int) -> Any:
    """The places of the numbers of a flattened input that are not zero."""
    known = node.counted or counted.CountedAxes.in_builder(node.builder)
    return counted.nonzero_places(node.builder, node[index], known)


def _compress(node: Node) -> Any:
    x, axis = node[0], node.attributes.get("axis")
    if axis is None:
        x, axis = node.emit(op.reshape(x, [-1])), 0
    axis = nodes.normalize_axis(int(axis), len(shape_of(x)))
    if nodes.is_constant(node[1]):
        positions = relax.const(np.flatnonzero(node.value(1)).astype(np.int64))
    else:
        positions = _nonzero_places(node, 1)
    return op.take(x, positions, axis)


def _non_zero(node: Node) -> Any:
    """``NonZero``: a column of indices for each element that is not zero."""
    shape = shape_of(node[0]) or [1]  # a scalar counts as a vector
    places = _nonzero_places(node, 0)
    rows = [op.expand_dims(row, 0) for row in counted.coordinates(node.builder, places, shape)]
    return op.concat(rows, 0)


def _non_max_suppression(node: Node) -> Any:
    most = 0 if node[2] is None else max(node.integers(2)[0], 0)
    overlap = relax.const([0.0], "float32") if node[3] is None else node[3]
    suppression = counted.Suppression(
        most=most, has_centers=bool(node.attributes.get("center_point_box"))
    )
    if not most * math.prod(shape_of(node[1])):
        return relax.const(np.zeros([0, 3]), "int64")
    boxes, scores, axes = node[0], node[1], node.counted_axes(1)
    return suppression.apply(node.builder, boxes, scores, overlap, node[4], axes=axes)


def _unique(node: Node) -> list[Any]:
    x, axis = node[0], node.attributes.get("axis")
    if axis is not None and len(shape_of(x)) != 1:
        raise NodeError("it compares slices of a tensor")
    flat = node.emit(op.reshape(x, [-1]))
    is_sorted = bool(node.attributes.get("sorted", 1))
    places, *others = counted.distinct(node.builder, flat, node.counted_axes(), is_sorted=is_sorted)
    return [op.take(flat, places, 0), places, *others]


def _eye(node: Node) -> Any:
    number = node.attributes.get("dtype")
    dtype = nodes.dtype_name(number) if number else node.emulated_dtypes[0] or dtype_of(node[0])
    rows, columns = shape_of(node[0])
    eye = np.eye(rows, columns, k=int(node.attributes["k"]))
    return nodes.relax_constant(eye.astype(np.dtype(dtype)))


def _space_to_depth(node: Node) -> Any:
    block, (batch, channels, height, width) = int(node.attributes["blocksize"]), shape_of(node[0])
    split = [batch, channels, height // block, block, width // block, block]
    depth_first = node.attributes.get("mode", "DCR") == "DCR"
    order = [0, 3, 5, 1, 2, 4] if depth_first else [0, 1, 3, 5, 2, 4]
    moved = op.permute_dims(op.reshape(node[0], split), order)
    return op.reshape(moved, [batch, channels * block**2, height // block, width // block])


def _reverse_sequence(node: Node) -> Any:
    """``ReverseSequence``: reverses the first elements of each sequence, as many as its length."""
    x, lengths = node[0], node.emit(op.astype(node[1], "int64"))
    shape = shape_of(x)
    time, batch = int(node.attributes["time_axis"]), int(node.attributes["batch_axis"])
    steps = np.arange(shape[time]).reshape([-1 if a == time else 1 for a in range(len(shape))])
    at = relax.const(steps, "int64")
    lengths_column = op.reshape(lengths, [-1 if axis == batch else 1 for axis in range(len(shape))])
    reversed_axes = lengths_column - relax.const(1, "int64") - at
    positions = node.emit(op.where(at < lengths_column, reversed_axes, at))
    return op.gather_elements(x, op.broadcast_to(positions, shape), time)


def _tensor_scatter(node: Node) -> Any:
    """``TensorScatter``: writes new rows into a cache, at a different start for each sequence."""
    cache, update, begins = node[0], node[1], node[2]
    shape = shape_of(cache)
    axis = nodes.normalize_axis(int(node.attributes.get("axis", -2)), len(shape))
    extent, added = shape[axis], shape_of(update)[axis]
    steps = np.arange(extent).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    rest: Any = relax.const(np.broadcast_to(steps, [shape[0], *steps.shape[1:]]), "int64")
    if begins is not None:
        first = op.reshape(node.emit(op.astype(begins, "int64")), [-1, *[1] * (len(shape) - 1)])
        rest = rest - first
    if node.attributes.get("mode") == "circular":
        rest = op.floor_mod(rest, relax.const(extent, "int64"))
    zero, last = (relax.const(number, "int64") for number in (0, added - 1))
    inside = op.logical_and(rest >= zero, rest <= last)
    positions = node.emit(op.minimum(op.maximum(rest, zero), last))
    gathered = op.gather_elements(update, op.broadcast_to(positions, shape), axis)
    return op.where(inside, gathered, cache)


def _top_k(node: Node) -> Any:
    """``TopK``; TVM's importer reads no count of version 10, and refuses results in any order."""
    axis, largest = node.attributes["axis"], bool(node.attributes.get("largest", 1))
    count = node.attributes.get("k") or node.integers(1)[0]
    if count == 0:  # TVM takes a count of 0 for all
        shape = [*shape_of(node[0])]
        shape[axis] = 0
        return [relax.const(np.zeros(shape), dtype) for dtype in (dtype_of(node[0]), "int64")]
    parts = node.emit(op.topk(node[0], count, axis, largest=largest, dtype="int64"))
    return [node.emit(relax.TupleGetItem(parts, index)) for index in range(2)]


def _scatter(node: Node) -> Any:
    """Scatter without indices, and the maximum and minimum of slices, which TVM lacks."""
    data, indices, updates = node[0], node[1], node[2]
    reduction = node.attributes.get("reduction")
    if 0 in shape_of(indices):
        return data
    if node.op_type != "ScatterND" or reduction not in {"max", "min"}:
        return NotImplemented
    shape, [*free, depth] = shape_of(data), shape_of(indices)
    # Slices are rows of a table, with one flat index for each.
    steps = np.cumprod([1, *shape[1:depth][::-1]])[::-1].astype(np.int64)
    wide_indices = node.emit(op.astype(indices, "int64"))
    extents = constant_of(np.asarray(shape[:depth], np.int64))
    positions = op.multiply(op.floor_mod(wide_indices, extents), constant_of(steps))
    positions = op.reshape(node.emit(op.sum(node.emit(positions), [-1])), [-1, 1])
    count, width = math.prod(free), math.prod(shape[depth:])
    table = op.reshape(data, [-1, width])
    rows, values = op.broadcast_to(positions, [count, width]), op.reshape(updates, [count, width])
    result = op.scatter_elements(table, node.emit(rows), values, 0, str(reduction))
    return op.reshape(node.emit(result), shape)


def _dropout(node: Node) -> list[Any]:
    """``Dropout`` in inference, which returns its input and a mask of ones."""
    training = node.known(2)
    ratio = node.known(1)
    if training is not None and training.any() and (ratio is None or ratio.any()):
        raise NodeError("it is in training mode, which draws random numbers")
    return [node[0], relax.const(np.ones(shape_of(node[0]), np.bool_))][: node.outputs]


def _array_features(node: Node) -> Any:
    """``ArrayFeatureExtractor``: columns of the last axis, which the second input numbers."""
    x, positions = node[0], op.reshape(node[1], [-1])
    gathered = op.take(x, positions, len(shape_of(x)) - 1)
    return op.reshape(gathered, [1, -1]) if len(shape_of(x)) == 1 else gathered


def _binarizer(node: Node) -> Any:
    x, limit = node[0], float(node.attributes["threshold"])
    return op.astype(op.greater(x, scalar(limit, x)), dtype_of(x))


DATA_MOVEMENT: Mapping[str, Callable[[Node], Any]] = {
    "Gather": _gather,
    "Reshape": _reshape,
    "Unsqueeze": _unsqueeze,
    "Slice": _slice,
    "Split": _split,
    "Pad": _pad,
    "Compress": _compress,
    "EyeLike": _eye,
    "SpaceToDepth": _space_to_depth,
    "ReverseSequence": _reverse_sequence,
    **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND"), _scatter),
    "TensorScatter": _tensor_scatter,
    "TopK": _top_k,
    "Dropout": _dropout,
    "ArrayFeatureExtractor": _array_features,
    "Binarizer": _binarizer,
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _non_zero,
    "Unique": _unique,
}
"""Converters by operator."""

COUNTING = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
"""Operators whose results have a size that depends on values."""

"""Indexing of torch's tensors with tensors: reading, writing, adding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from chameleon_tvm.types import UINT8

from chameleon_networks.graph.relaxed import relax
from chameleon_networks.importers.torch.lowering.values import (
    Converter,
    dtype_of,
    extents,
    given,
    tensor,
)

_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
"""The reductions of torch's ``scatter_reduce``, and what TVM calls them."""


def _take(importer: Any, data: Any, index: Any, axis: int) -> Any:
    return importer.block_builder.emit(relax.op.take(data, index, axis))


def _embedding(node: Any, importer: Any) -> Any:
    weights, index = (importer.env[one] for one in node.args[:2])
    return _take(importer, weights, index, 0)


def _index_select(node: Any, importer: Any) -> Any:
    data, axis, index = node.args
    return _take(importer, importer.env[data], importer.env[index], axis)


def _select(node: Any, importer: Any) -> Any:
    """``x[:, 3]`` as a slice, of which data are not copied; TVM reads before the array for -1."""
    emit = importer.block_builder.emit
    data = importer.env[node.args[0]]
    shape = extents(data)
    axis = node.args[1] % len(shape)
    place = node.args[2] % shape[axis]
    part = emit(relax.op.strided_slice(data, [axis], [place], [place + 1]))
    return emit(relax.op.squeeze(part, [axis]))


def _index(node: Any, importer: Any) -> Any:
    """``x[..., i, j, ...]`` as NumPy and torch define it.

    One index is a ``take``. Several are broadcast; what they find comes first, or in their place
    where they are neighbours.
    """
    emit = importer.block_builder.emit
    data = importer.env[node.args[0]]
    places, indices = _indices(importer, data, node.args[1])
    if len(places) == 1:
        return _take(importer, data, indices[0], places[0])
    rank = len(extents(data))
    rest = [axis for axis in range(rank) if axis not in places]
    order = [*places, *rest]
    if order != list(range(rank)):
        data = emit(relax.op.permute_dims(data, order))
    found = emit(relax.op.index_tensor(data, indices))
    back = _in_place(places, rest, len(extents(indices[0])))
    return found if back is None else emit(relax.op.permute_dims(found, back))


def _in_place(places: Sequence[int], rest: Sequence[int], found: int) -> list[int] | None:
    """The order that puts what was found where the indices were; None where it is there."""
    together = list(places) == list(range(places[0], places[0] + len(places)))
    before = places[0] if together else 0
    if not before:
        return None
    return [
        *range(found, found + before),
        *range(found),
        *range(found + before, found + len(rest)),
    ]


def _indices(importer: Any, data: Any, given_ones: Sequence[Any]) -> tuple[list[int], list[Any]]:
    """The indexed axes, and for each an index that is not negative; all of one shape."""
    emit = importer.block_builder.emit
    shape = extents(data)
    places = [place for place, one in enumerate(given_ones) if one is not None]
    indices = [importer.env[given_ones[place]] for place in places]
    if any(str(index.ty.dtype) in {"bool", UINT8} for index in indices):
        raise NotImplementedError("how many numbers a mask selects is known only when it runs")
    common = np.broadcast_shapes(*(tuple(extents(index)) for index in indices))
    made = []
    for place, raw in zip(places, indices, strict=True):
        index = raw
        if len(indices) > 1 and tuple(extents(index)) != common:
            index = emit(relax.op.broadcast_to(index, common))
        dtype = str(index.ty.dtype)
        below = emit(relax.op.less(index, relax.const(0, dtype)))
        other = emit(relax.op.add(index, relax.const(shape[place], dtype)))
        made.append(emit(relax.op.where(below, other, index)))
    return places, made


def _index_put(node: Any, importer: Any) -> Any:
    """``x[..., i, j, ...] = values``, or ``+=``; and ``x[mask] = value``."""
    emit = importer.block_builder.emit
    dtype = dtype_of(node)
    data, values = (tensor(importer, node.args[place], dtype) for place in (0, 2))
    accumulate = bool(given(node, 3, "accumulate", False))
    masks = [one for one in node.args[1] if one is not None]
    if len(masks) == 1 and str(importer.env[masks[0]].ty.dtype) == "bool":
        return _masked_put(importer, data, importer.env[masks[0]], values, accumulate=accumulate)
    places, indices = _indices(importer, data, node.args[1])
    rank, shape = len(extents(data)), extents(data)
    rest = [axis for axis in range(rank) if axis not in places]
    found = extents(indices[0])
    back = _in_place(places, rest, len(found))
    target = [*found, *(shape[axis] for axis in rest)]
    if back is None:
        values = emit(relax.op.broadcast_to(values, target))
    else:
        values = emit(relax.op.broadcast_to(values, [target[axis] for axis in back]))
        values = emit(relax.op.permute_dims(values, _inverse(back)))
    order = [*places, *rest]
    moved = data if order == list(range(rank)) else emit(relax.op.permute_dims(data, order))
    columns = [
        emit(relax.op.expand_dims(emit(relax.op.astype(index, "int64")), -1)) for index in indices
    ]
    index = columns[0] if len(columns) == 1 else emit(relax.op.concat(columns, -1))
    made = emit(relax.op.scatter_nd(moved, index, values, "add" if accumulate else "update"))
    return made if moved is data else emit(relax.op.permute_dims(made, _inverse(order)))


def _masked_put(importer: Any, data: Any, mask: Any, values: Any, *, accumulate: bool) -> Any:
    """One value wherever a mask says so."""
    emit = importer.block_builder.emit
    if int(np.prod(extents(values))) != 1:
        raise NotImplementedError("how many numbers a mask selects is known only when it runs")
    scalar = emit(relax.op.reshape(values, []))
    rank = len(extents(data)) - len(extents(mask))
    if rank:
        mask = emit(relax.op.reshape(mask, [*extents(mask), *(1,) * rank]))
    other = emit(relax.op.add(data, scalar)) if accumulate else scalar
    return emit(relax.op.where(mask, other, data))


def _inverse(order: Sequence[int]) -> list[int]:
    return [int(place) for place in np.argsort(order)]


def _scatter(reduction: str | None) -> Converter:
    """``scatter_add`` and ``scatter_reduce``, whose source may be larger than the index."""

    def convert(node: Any, importer: Any) -> Any:
        emit = importer.block_builder.emit
        axis, kind = node.args[1], reduction
        if kind is None:
            kind = _REDUCTIONS.get(node.args[4])
            if kind is None or not given(node, 5, "include_self", True):
                raise NotImplementedError("only sums, products and extremes with the input are")
        data, index, source = (importer.env[node.args[place]] for place in (0, 2, 3))
        wanted = extents(index)
        if extents(source) != wanted:
            axes, begin = list(range(len(wanted))), [0] * len(wanted)
            source = emit(relax.op.strided_slice(source, axes, begin, wanted))
        return emit(relax.op.scatter_elements(data, index, source, axis, kind))

    return convert


CONVERTERS: dict[str, Converter] = {
    "embedding.default": _embedding,
    "index_select.default": _index_select,
    "select.int": _select,
    "index.Tensor": _index,
    "index_put.default": _index_put,
    "index_put_.default": _index_put,
    "scatter_add.default": _scatter("add"),
    "scatter_reduce.two": _scatter(None),
}
"""Converters by the name of the operator."""

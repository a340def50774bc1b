"""Converters of torch's indexing with tensors, embedding bags, and scatter operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from chameleon_tvm.quick_tvm import te, tirx
from chameleon_tvm.types import UINT8

from chameleon_networks.graph.relaxed import relax
from chameleon_networks.importers.torch.lowering.values import Call, Converter, extents

_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
"""TVM's name for each reduction of torch's ``scatter_reduce``."""


def _embedding(call: Call) -> Any:
    return call.emit(relax.op.take(call.value(0), call.value(1), 0))


def _index_select(call: Call) -> Any:
    return call.emit(relax.op.take(call.value(0), call.value(2), call.node.args[1]))


def _select(call: Call) -> Any:
    """``x[:, 3]`` as a slice, which copies no data; TVM would read before the array for -1."""
    data = call.value(0)
    shape = extents(data)
    axis = call.node.args[1] % len(shape)
    place = call.node.args[2] % shape[axis]
    part = call.emit(relax.op.strided_slice(data, [axis], [place], [place + 1]))
    return call.emit(relax.op.squeeze(part, [axis]))


def _parts(call: Call) -> Any:
    """``split_with_sizes``; TVM's importer makes no tuple of a single part."""
    if len(call.node.meta["val"]) == 1:
        return call.emit(relax.Tuple([call.value(0)]))
    return call.importer._split(call.node)  # noqa: SLF001 - it has no other way in


def _index(call: Call) -> Any:
    """``x[..., i, j, ...]`` with index tensors, as NumPy and torch define it.

    One index is a ``take``. Several indices are broadcast to each other. The axes of their result
    come first, or replace the indexed axes if these are neighbours.
    """
    data = call.value(0)
    places, indices = _indices(call, data, call.node.args[1])
    if len(places) == 1:
        return call.emit(relax.op.take(data, indices[0], places[0]))
    rank = len(extents(data))
    rest = [axis for axis in range(rank) if axis not in places]
    order = [*places, *rest]
    if order != list(range(rank)):
        data = call.emit(relax.op.permute_dims(data, order))
    found = call.emit(relax.op.index_tensor(data, indices))
    back = _in_place(places, rest, len(extents(indices[0])))
    return found if back is None else call.emit(relax.op.permute_dims(found, back))


def _in_place(places: Sequence[int], rest: Sequence[int], found: int) -> list[int] | None:
    """The order that moves the result's axes to the indexed axes. None if they are in place."""
    together = list(places) == list(range(places[0], places[0] + len(places)))
    before = places[0] if together else 0
    if not before:
        return None
    return [*range(found, found + before), *range(found), *range(found + before, found + len(rest))]


def _indices(call: Call, data: Any, given_ones: Sequence[Any]) -> tuple[list[int], list[Any]]:
    """The indexed axes, and a non-negative index tensor for each. All indices have one shape."""
    shape = extents(data)
    places = [place for place, one in enumerate(given_ones) if one is not None]
    indices = [call.tensor(given_ones[place]) for place in places]
    if any(str(index.ty.dtype) in {"bool", UINT8} for index in indices):
        raise NotImplementedError("how many numbers a mask selects is known only when it runs")
    common = np.broadcast_shapes(*(tuple(extents(index)) for index in indices))
    made = []
    for place, raw in zip(places, indices, strict=True):
        index = raw
        if len(indices) > 1 and tuple(extents(index)) != common:
            index = call.emit(relax.op.broadcast_to(index, common))
        dtype = str(index.ty.dtype)
        below = call.emit(relax.op.less(index, relax.const(0, dtype)))
        other = call.emit(relax.op.add(index, relax.const(shape[place], dtype)))
        made.append(call.emit(relax.op.where(below, other, index)))
    return places, made


def _index_put(call: Call) -> Any:
    """``x[..., i, j, ...] = values`` or ``+=`` with index tensors, and ``x[mask] = value``."""
    dtype = call.dtype
    data, values = (call.tensor(call.node.args[place], dtype) for place in (0, 2))
    accumulate = bool(call.given(3, "accumulate", False))
    masks = [one for one in call.node.args[1] if one is not None]
    if len(masks) == 1 and str(call.tensor(masks[0]).ty.dtype) == "bool":
        return _masked_put(call, data, call.tensor(masks[0]), values, accumulate=accumulate)
    places, indices = _indices(call, data, call.node.args[1])
    rank, shape = len(extents(data)), extents(data)
    rest = [axis for axis in range(rank) if axis not in places]
    found = extents(indices[0])
    back = _in_place(places, rest, len(found))
    target = [*found, *(shape[axis] for axis in rest)]
    if back is None:
        values = call.emit(relax.op.broadcast_to(values, target))
    else:
        values = call.emit(relax.op.broadcast_to(values, [target[axis] for axis in back]))
        values = call.emit(relax.op.permute_dims(values, _inverse(back)))
    order = [*places, *rest]
    moved = data if order == list(range(rank)) else call.emit(relax.op.permute_dims(data, order))
    columns = [
        call.emit(relax.op.expand_dims(call.emit(relax.op.astype(index, "int64")), -1))
        for index in indices
    ]
    index = columns[0] if len(columns) == 1 else call.emit(relax.op.concat(columns, -1))
    made = call.emit(relax.op.scatter_nd(moved, index, values, "add" if accumulate else "update"))
    return made if moved is data else call.emit(relax.op.permute_dims(made, _inverse(order)))


def _masked_put(call: Call, data: Any, mask: Any, values: Any, *, accumulate: bool) -> Any:
    """Write one value at each place where a mask is true."""
    if int(np.prod(extents(values))) != 1:
        raise NotImplementedError("how many numbers a mask selects is known only when it runs")
    scalar = call.emit(relax.op.reshape(values, []))
    rank = len(extents(data)) - len(extents(mask))
    if rank:
        mask = call.emit(relax.op.reshape(mask, [*extents(mask), *(1,) * rank]))
    other = call.emit(relax.op.add(data, scalar)) if accumulate else scalar
    return call.emit(relax.op.where(mask, other, data))


def _inverse(order: Sequence[int]) -> list[int]:
    return [int(place) for place in np.argsort(order)]


def _scatter(reduction: str | None, call: Call) -> Any:
    """``scatter_add`` and ``scatter_reduce``, whose source may be larger than their index."""
    axis, kind = call.node.args[1], reduction
    if kind is None:
        kind = _REDUCTIONS.get(call.node.args[4])
        if kind is None or not call.given(5, "include_self", True):
            raise NotImplementedError("only sums, products and extremes with the input are")
    data, index, source = (call.value(place) for place in (0, 2, 3))
    wanted = extents(index)
    if extents(source) != wanted:
        axes, begin = list(range(len(wanted))), [0] * len(wanted)
        source = call.emit(relax.op.strided_slice(source, axes, begin, wanted))
    return call.emit(relax.op.scatter_elements(data, index, source, axis, kind))


_MEAN, _MAX = 1, 2
"""torch's numbers for the modes mean and max. The other mode is the sum."""


def _embedding_bag(call: Call) -> tuple[Any]:
    """``nn.EmbeddingBag``; only the first of its results."""
    weights, indices, offsets = (call.value(place) for place in range(3))
    factors = call.given(6, "per_sample_weights")
    rows = call.emit(relax.op.take(weights, indices, 0))
    count, width = extents(rows)
    size = _equal_size(call)
    if size is None:
        return (_of_any_size(call, rows, _inside(call, indices, offsets)),)
    bags = call.emit(relax.op.reshape(rows, [count // size, size, width]))
    if factors is not None:
        by_row = call.emit(relax.op.reshape(call.tensor(factors), [count // size, size, 1]))
        bags = call.emit(relax.op.multiply(bags, by_row))
    mode = call.given(4, "mode", 0)
    reduce = {_MEAN: relax.op.mean, _MAX: relax.op.max}.get(mode, relax.op.sum)
    return (call.emit(reduce(bags, [1])),)


def _equal_size(call: Call) -> int | None:
    """The size that all bags have, if the program shows it, as for a matrix of indices.

    Else None.
    """
    offsets = call.node.args[2]
    if offsets.target is not torch.ops.aten.arange.start_step or _padding(call) >= 0:
        return None
    start, end, size = (*offsets.args, 1)[:3]
    whole = start == 0 and end % size == 0 and end == call.node.args[1].meta["val"].shape[0]
    return int(size) if whole and not call.given(7, "include_last_offset", False) else None


def _padding(call: Call) -> int:
    """The index that no bag counts (``padding_idx``), or -1."""
    return int(call.given(8, "padding_idx", -1))


def _inside(call: Call, indices: Any, offsets: Any) -> Any:
    """A mask of shape (bags, rows) that says whether a row belongs to a bag."""
    [count] = extents(indices)
    [bags] = extents(offsets)
    kind = str(offsets.ty.dtype)
    if call.given(7, "include_last_offset", False):
        bags -= 1
        begin, end = (
            call.emit(relax.op.strided_slice(offsets, [0], [place], [place + bags]))
            for place in (0, 1)
        )
    else:
        begin = offsets
        later = call.emit(relax.op.strided_slice(offsets, [0], [1], [bags]))
        end = call.emit(relax.op.concat([later, relax.const(np.array([count]), kind)], 0))
    places = relax.const(np.arange(count), kind)
    after = call.emit(relax.op.greater_equal(places, call.emit(relax.op.expand_dims(begin, 1))))
    before = call.emit(relax.op.less(places, call.emit(relax.op.expand_dims(end, 1))))
    inside = call.emit(relax.op.logical_and(after, before))
    padding = _padding(call)
    if padding < 0:
        return inside
    kept = call.emit(relax.op.not_equal(indices, relax.const(padding, str(indices.ty.dtype))))
    return call.emit(relax.op.logical_and(inside, kept))


def _of_any_size(call: Call, rows: Any, inside: Any) -> Any:
    """Reduce bags whose sizes are known only at run time. A bag without a row becomes zeros."""
    kind = str(rows.ty.dtype)
    mode = call.given(4, "mode", 0)
    member = call.emit(relax.op.astype(inside, kind))
    count = call.emit(relax.op.sum(member, [1], keepdims=True))
    if mode == _MAX:
        lowest = relax.const(np.finfo(kind).min, kind)
        found = call.emit(relax.op.where(call.emit(relax.op.expand_dims(inside, 2)), rows, lowest))
        largest = call.emit(relax.op.max(found, [1]))
        some = call.emit(relax.op.greater(count, relax.const(0.0, kind)))
        return call.emit(relax.op.where(some, largest, relax.const(0.0, kind)))
    factors = call.given(6, "per_sample_weights")
    if factors is not None:
        member = call.emit(relax.op.multiply(member, call.tensor(factors)))
    total = call.emit(relax.op.matmul(member, rows))
    if mode != _MEAN:
        return total
    return call.emit(
        relax.op.divide(total, call.emit(relax.op.maximum(count, relax.const(1.0, kind))))
    )


def _products_by_group(call: Call) -> Any:
    """Multiply rows by the matrix of their group, as a mixture of experts in transformers does.

    The rows are in the order of the groups, and the last argument has the end of each group.
    """
    rows, matrices, ends = (call.value(place) for place in range(3))
    count, (groups, depth, width) = extents(rows)[0], extents(matrices)
    places = relax.const(np.arange(count)[:, None], str(ends.ty.dtype))
    before = call.emit(relax.op.less_equal(ends, places))
    group = call.emit(relax.op.sum(call.emit(relax.op.astype(before, "int32")), [1]))

    def products(x: te.Tensor, weights: te.Tensor, of: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, depth), "k")

        def product(row: Any, column: Any) -> Any:
            matrix = te.min(of[row], groups - 1)
            inside = tirx.Cast(x.dtype, of[row] < groups)
            return te.sum(inside * x[row, k] * weights[matrix, k, column], axis=k)

        return te.compute((count, width), product, name="products_by_group")

    return call.emit(call.importer.block_builder.call_te(products, rows, matrices, group))


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(
        ("_embedding_bag.default", "_embedding_bag_forward_only.default"), _embedding_bag
    ),
    "embedding.default": _embedding,
    "index_select.default": _index_select,
    "select.int": _select,
    **dict.fromkeys(("split_with_sizes.default", "split.Tensor"), _parts),
    "index.Tensor": _index,
    **dict.fromkeys(("index_put.default", "index_put_.default"), _index_put),
    "grouped_mm_fallback.default": _products_by_group,
    "scatter_add.default": partial(_scatter, "add"),
    "scatter_reduce.two": partial(_scatter, None),
}
"""Converters by the name of the operator."""

"""Converters of torch's indexing with tensors, embedding bags, and scatter operators."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from chameleon_tvm.api import UINT8, emit, te, tirx

from chameleon_networks._graph.relax_utils import (
    UPDATE_ATTRIBUTE,
    opaque_loops,
    relax,
)
from chameleon_networks._importers.torch.lowering.torch_calls import Converter, TorchCall, extents

op = relax.op


_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
"""TVM's name for each reduction of torch's ``scatter_reduce``."""


def _select(call: TorchCall) -> Any:
    """``x[:, 3]`` as a slice, which copies no data; TVM would read before the array for -1."""
    data = call.value(0)
    shape = extents(data)
    axis = call.node.args[1] % len(shape)
    position = call.node.args[2] % shape[axis]
    return op.squeeze(op.strided_slice(data, [axis], [position], [position + 1]), [axis])


def _arange(call: TorchCall) -> Any:
    """``arange`` as a constant; TVM gives the wrong shape for steps below zero."""
    return relax.const(call.node.target(*call.node.args, **call.node.kwargs).numpy(), call.dtype)


def _index(call: TorchCall) -> Any:
    """``x[..., i, j, ...]`` with index tensors, as NumPy and torch define it."""
    # The indexed axes come first, or stay in place if they are neighbours.
    data = call.value(0)
    positions, indices = _index_tensors(call, data, call.node.args[1])
    if len(positions) == 1:
        return op.take(data, indices[0], positions[0])
    rest = [axis for axis in range(len(extents(data))) if axis not in positions]
    elements = op.index_tensor(_permute(data, [*positions, *rest]), indices)
    return _permute(elements, _result_order(positions, rest, len(extents(indices[0]))))


def _permute(value: Any, order: Sequence[int]) -> Any:
    return value if list(order) == sorted(order) else op.permute_dims(value, list(order))


def _result_order(positions: Sequence[int], rest: Sequence[int], rank: int) -> list[int]:
    """The order that moves the result's axes to the indexed axes."""
    together = list(positions) == list(range(positions[0], positions[0] + len(positions)))
    before = positions[0] if together else 0
    return [*range(rank, rank + before), *range(rank), *range(rank + before, rank + len(rest))]


def _index_tensors(
    call: TorchCall, data: Any, arguments: Sequence[Any]
) -> tuple[list[int], list[Any]]:
    """The indexed axes, and a non-negative index tensor for each. All indices have one shape."""
    positions, indices = _plain_index_tensors(call, arguments)
    result = []
    for position, index in zip(positions, indices, strict=True):
        kind, extent = str(index.ty.dtype), extents(data)[position]
        zero, whole = (relax.const(number, kind) for number in (0, extent))
        result.append(call.emit(op.where(index < zero, index + whole, index)))
    return positions, result


def _plain_index_tensors(call: TorchCall, arguments: Sequence[Any]) -> tuple[list[int], list[Any]]:
    """The indexed axes, and an index tensor for each. All indices have one shape."""
    positions = [i for i, item in enumerate(arguments) if item is not None]
    indices = [call.tensor(arguments[i]) for i in positions]
    if any(str(index.ty.dtype) in {"bool", UINT8} for index in indices):
        raise NotImplementedError("how many numbers a mask selects is known only when it runs")
    common = np.broadcast_shapes(*(tuple(extents(index)) for index in indices))
    return positions, [
        index if tuple(extents(index)) == common else call.emit(op.broadcast_to(index, common))
        for index in indices
    ]


def _index_put(call: TorchCall) -> Any:
    """``x[..., i, j, ...] = values`` or ``+=`` with index tensors, and ``x[mask] = value``."""
    dtype = call.dtype
    data, values = (call.tensor(call.node.args[position], dtype) for position in (0, 2))
    accumulate = bool(call.argument(3, "accumulate", False))
    masks = [index_or_none for index_or_none in call.node.args[1] if index_or_none is not None]
    if len(masks) == 1 and str(call.tensor(masks[0]).ty.dtype) == "bool":
        return _masked_put(data, call.tensor(masks[0]), values, accumulate=accumulate)
    if not accumulate and call.importer.is_state(call.node.args[0]):
        return _updated(call, data, *_plain_index_tensors(call, call.node.args[1]), values)
    positions, indices = _index_tensors(call, data, call.node.args[1])
    shape, index_shape = extents(data), extents(indices[0])
    rest = [axis for axis in range(len(shape)) if axis not in positions]
    result_order, order = _result_order(positions, rest, len(index_shape)), [*positions, *rest]
    target = [*index_shape, *(shape[axis] for axis in rest)]
    values = op.broadcast_to(values, [target[axis] for axis in result_order])
    values = _permute(values, _inverse(result_order))
    columns = [op.expand_dims(op.astype(index, "int64"), -1) for index in indices]
    index = columns[0] if len(columns) == 1 else op.concat(columns, -1)
    mode = "add" if accumulate else "update"
    result = op.scatter_nd(_permute(data, order), index, values, mode)
    return _permute(result, _inverse(order))


def _updated(
    call: TorchCall, data: Any, positions: Sequence[int], indices: Sequence[Any], values: Any
) -> Any:
    """Rows written into a buffer that calls change, by a kernel that need not copy the buffer."""
    shape, index_shape = extents(data), extents(indices[0])
    rest = [axis for axis in range(len(shape)) if axis not in positions]
    order = _result_order(positions, rest, len(index_shape))
    target = [*index_shape, *(shape[axis] for axis in rest)]
    target = [target[axis] for axis in order]
    if extents(values) != target:
        values = call.emit(op.broadcast_to(values, target))
    builder, first = call.importer.block_builder, order.index(0)
    kernel = _update(shape, str(data.ty.dtype), positions, indices, first)
    arguments = [data, *indices, values]
    return builder.emit(relax.call_tir(builder.add_func(kernel, "update"), arguments, data.ty))


def _update(
    shape: Sequence[int], dtype: str, axes: Sequence[int], indices: Sequence[Any], first: int
) -> Any:
    """The kernel of ``x[..., i, j, ...] = values``, with index tensors of one shape.

    Its parameters are the tensor, the indices, the values, and the result. An index beyond the
    tensor writes nothing.

    Args:
        shape: The shape of the tensor.
        dtype: The dtype of the tensor.
        axes: The axes of the tensor with an index.
        indices: The index tensors.
        first: The first axis of the values that belongs to the indices.
    """
    places = [int(extent) for extent in indices[0].ty.shape]
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    before, after = rest[:first], rest[first:]
    extents = [*(shape[axis] for axis in before), *places, *(shape[axis] for axis in after)]
    data, values, result = (
        emit.buffer(name, extent, dtype=dtype)
        for name, extent in (("x", shape), ("values", extents), ("y", shape))
    )
    tables = [
        emit.buffer(f"i{number}", places, dtype=str(index.ty.dtype))
        for number, index in enumerate(indices)
    ]

    def write(*at: Any) -> Any:
        outer, inner = at[: len(before)], at[len(before) :]
        loaded = [tirx.Cast("int32", emit.load(table, inner)) for table in tables]
        row = [
            tirx.Select(index < 0, index + shape[axis], index)
            for axis, index in zip(axes, loaded, strict=True)
        ]
        inside = [
            tirx.all(index >= 0, index < shape[axis]) for axis, index in zip(axes, row, strict=True)
        ]

        def store(*columns: Any) -> Any:
            place = dict(zip(rest, (*outer, *columns), strict=True)) | dict(
                zip(axes, row, strict=True)
            )
            number = emit.load(values, [*at, *columns])
            return emit.store(result, [place[axis] for axis in range(len(shape))], number)

        columns = {f"column{axis}": shape[axis] for axis in after}
        return emit.when(tirx.all(*inside), emit.loops(columns, store))

    names = {
        f"at{axis}": extent for axis, extent in enumerate(extents[: len(extents) - len(after)])
    }
    if before:
        head, *others = names.items()
        rows = emit.parallel(
            head[0], head[1], lambda at: emit.loops(dict(others), lambda *more: write(at, *more))
        )
    else:
        rows = emit.loops(names, write)
    outer_shape, inner = list(shape[:-1]), shape[-1] if shape else 1

    def copy(row: Any) -> Any:
        place = emit.split(row, outer_shape)

        def element(column: Any) -> Any:
            at = [*place, column][: len(shape)]
            return emit.store(result, at, emit.load(data, at))

        return emit.loop("column", inner, element)

    whole = emit.parallel("row", math.prod(outer_shape), copy)
    body = emit.sequence([whole, rows])
    function = opaque_loops(emit.function([data, *tables, values, result], body))
    return function.with_attr(UPDATE_ATTRIBUTE, 1)


def _slice_scatter(call: TorchCall) -> Any:
    """``x[:, 2:5] = values``, as an update of rows if ``x`` is a buffer that calls change."""
    data, axis = call.tensor(call.node.args[0]), int(call.argument(2, "dim", 0))
    shape = extents(data)
    axis %= len(shape)
    start, end = call.argument(3, "start"), call.argument(4, "end")
    step = int(call.argument(5, "step", 1))
    rows = range(shape[axis])[start:end:step]
    values = call.tensor(call.node.args[1], str(data.ty.dtype))
    if call.importer.is_state(call.node.args[0]):
        indices = [relax.const(np.array(rows, np.int64))]
        return _updated(call, data, [axis], indices, values)
    return op.slice_scatter(data, values, rows.start, rows.stop, rows.step, axis)


def _masked_put(data: Any, mask: Any, values: Any, *, accumulate: bool) -> Any:
    """Write one value at each place where a mask is true."""
    if int(np.prod(extents(values))) != 1:
        raise NotImplementedError("how many numbers a mask selects is known only when it runs")
    scalar = op.reshape(values, [])
    rank = len(extents(data)) - len(extents(mask))
    if rank:
        mask = op.reshape(mask, [*extents(mask), *(1,) * rank])
    return op.where(mask, data + scalar if accumulate else scalar, data)


def _inverse(order: Sequence[int]) -> list[int]:
    return [int(position) for position in np.argsort(order)]


def _scatter(reduction: str | None, call: TorchCall) -> Any:
    """``scatter_add`` and ``scatter_reduce``, whose source may be larger than their index."""
    axis, kind = call.node.args[1], reduction
    if kind is None:
        kind = _REDUCTIONS.get(call.node.args[4])
        if kind is None or not call.argument(5, "include_self", True):
            raise NotImplementedError("only sums, products and extremes with the input are")
    data, index, source = (call.value(position) for position in (0, 2, 3))
    wanted = extents(index)
    if extents(source) != wanted:
        axes, begin = list(range(len(wanted))), [0] * len(wanted)
        source = op.strided_slice(source, axes, begin, wanted)
    return op.scatter_elements(data, index, source, axis, kind)


_MEAN, _MAX = 1, 2
"""torch's numbers for the modes mean and max. The other mode is the sum."""


def _embedding_bag(call: TorchCall) -> tuple[Any]:
    """``nn.EmbeddingBag``; only the first of its results."""
    weights, indices, offsets = (call.value(position) for position in range(3))
    factors = call.argument(6, "per_sample_weights")
    rows = call.emit(op.take(weights, indices, 0))
    count, width = extents(rows)
    size = _common_bag_size(call)
    if size is None:
        return (_reduce_variable_bags(call, rows, _bag_mask(call, indices, offsets)),)
    bags = op.reshape(rows, [count // size, size, width])
    if factors is not None:
        bags = bags * op.reshape(call.tensor(factors), [count // size, size, 1])
    mode = call.argument(4, "mode", 0)
    reduce = {_MEAN: op.mean, _MAX: op.max}.get(mode, op.sum)
    return (call.emit(reduce(bags, [1])),)


def _common_bag_size(call: TorchCall) -> int | None:
    """The size that all bags have, if the program shows it, or None."""
    offsets = call.node.args[2]
    if offsets.target is not torch.ops.aten.arange.start_step or _padding_index(call) >= 0:
        return None
    start, end, size = (*offsets.args, 1)[:3]
    whole = start == 0 and end % size == 0 and end == call.node.args[1].meta["val"].shape[0]
    return int(size) if whole and not call.argument(7, "include_last_offset", False) else None


def _padding_index(call: TorchCall) -> int:
    """The index that no bag counts (``padding_idx``), or -1."""
    return int(call.argument(8, "padding_idx", -1))


def _bag_mask(call: TorchCall, indices: Any, offsets: Any) -> Any:
    """A mask of shape (bags, rows) that says whether a row belongs to a bag."""
    [count] = extents(indices)
    [bags] = extents(offsets)
    kind = str(offsets.ty.dtype)
    if call.argument(7, "include_last_offset", False):
        bags -= 1
        begin, end = (op.strided_slice(offsets, [0], [at], [at + bags]) for at in (0, 1))
    else:
        begin, later = offsets, op.strided_slice(offsets, [0], [1], [bags])
        end = op.concat([later, relax.const(np.array([count]), kind)], 0)
    positions = relax.const(np.arange(count), kind)
    inside = op.logical_and(
        positions >= op.expand_dims(begin, 1), positions < op.expand_dims(end, 1)
    )
    padding = _padding_index(call)
    if padding >= 0:
        kept = op.not_equal(indices, relax.const(padding, str(indices.ty.dtype)))
        inside = op.logical_and(inside, kept)
    return call.emit(inside)


def _reduce_variable_bags(call: TorchCall, rows: Any, inside: Any) -> Any:
    """Reduce bags whose sizes are known only at run time. A bag without a row becomes zeros."""
    kind, mode = str(rows.ty.dtype), call.argument(4, "mode", 0)
    member = call.emit(op.astype(inside, kind))
    count, zero = op.sum(member, [1], keepdims=True), relax.const(0.0, kind)
    if mode == _MAX:
        lowest = relax.const(-math.inf, kind)
        largest = op.max(op.where(op.expand_dims(inside, 2), rows, lowest), [1])
        return call.emit(op.where(count > zero, largest, zero))
    factors = call.argument(6, "per_sample_weights")
    if factors is not None:
        member = member * call.tensor(factors)
    # A product with zeros would pass on NaN and infinities of other bags.
    terms = op.where(op.expand_dims(inside, 2), op.expand_dims(member, 2) * rows, zero)
    total = op.sum(terms, [1])
    if mode == _MEAN:
        total = total / op.maximum(count, relax.const(1.0, kind))
    return call.emit(total)


def _grouped_matmul(call: TorchCall) -> Any:
    """Multiply rows, sorted by group, by the matrix of their group (mixture of experts)."""
    rows, matrices, ends = (call.value(position) for position in range(3))
    count, (groups, depth, width) = extents(rows)[0], extents(matrices)
    positions = relax.const(np.arange(count)[:, None], str(ends.ty.dtype))
    group = call.emit(op.sum(op.astype(ends <= positions, "int32"), [1]))

    def products(x: te.Tensor, weights: te.Tensor, of: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, depth), "k")

        def product(row: Any, column: Any) -> Any:
            matrix = te.min(of[row], groups - 1)
            inside = tirx.Cast(x.dtype, of[row] < groups)
            return te.sum(inside * x[row, k] * weights[matrix, k, column], axis=k)

        return te.compute((count, width), product, name="products_by_group")

    return call.importer.block_builder.call_te(products, rows, matrices, group)


def _as_strided(call: TorchCall) -> Any:
    """``as_strided`` that was not decomposed; TVM's importer would take the tensor as dense."""
    raise NotImplementedError("it reads a tensor whose elements do not fill their memory")


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(
        ("_embedding_bag.default", "_embedding_bag_forward_only.default"), _embedding_bag
    ),
    "arange.start_step": _arange,
    "as_strided.default": _as_strided,
    "embedding.default": lambda call: op.take(call.value(0), call.value(1), 0),
    "index_select.default": lambda call: op.take(call.value(0), call.value(2), call.node.args[1]),
    "select.int": _select,
    "index.Tensor": _index,
    "slice_scatter.default": _slice_scatter,
    **dict.fromkeys(("index_put.default", "index_put_.default"), _index_put),
    "grouped_mm_fallback.default": _grouped_matmul,
    "scatter_add.default": partial(_scatter, "add"),
    "scatter_reduce.two": partial(_scatter, None),
}
"""Converters by the name of the operator."""

"""Torch operators whose results have a size that depends on values, such as ``nonzero``.

Each becomes an operator of Chameleon, whose result has the largest possible size and a count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from chameleon_networks._graph import counted
from chameleon_networks._importers.torch.lowering.torch_calls import Converter, TorchCall

_ATEN = torch.ops.aten
NAMESPACE = "chameleon"
"""The namespace of operators that exist only between the export of a program and its import."""
_LIBRARY = torch.library.Library(NAMESPACE, "DEF")


def _define(schema: str, function: Callable[..., Any]) -> Any:
    """Define an operator by its function, which also gives the shapes of fake tensors."""
    _LIBRARY.define(schema)
    name = schema.partition("(")[0]
    _LIBRARY.impl(name, function, "CompositeExplicitAutograd")
    return getattr(torch.ops.chameleon, name).default


def _padded(values: Any, extent: int) -> Any:
    """The first elements of a tensor of some length, and then zeros."""
    result = values.new_zeros(extent)
    result[: len(values)] = values
    return result


def _is_fake(*tensors: Any) -> bool:
    return any(type(tensor) is not torch.Tensor for tensor in tensors)


def _places(x: Any) -> Any:
    """The places of numbers that are not zero in a vector."""
    if _is_fake(x):
        return x.new_empty(x.shape, dtype=torch.int64)
    return _padded(x.nonzero().reshape(-1), len(x))


def _distinct(x: Any, is_sorted: bool, neighbours: bool) -> Any:
    """The first places of distinct numbers of a vector, the number of each, and how often it is."""
    del is_sorted
    empty = [x.new_empty(x.shape, dtype=torch.int64) for _ in range(3)]
    if _is_fake(x):
        return tuple(empty)
    unique = torch.unique_consecutive if neighbours else torch.unique
    values, inverse, counts = unique(x, return_inverse=True, return_counts=True)
    first = torch.full(values.shape, len(x)).scatter_reduce(
        0, inverse, torch.arange(len(x)), "amin"
    )
    return _padded(first, len(x)), inverse, _padded(counts, len(x))


def _suppressed(boxes: Any, scores: Any, overlap: float) -> Any:
    """The boxes that overlap no better one, the best one first."""
    if _is_fake(boxes, scores):
        return scores.new_empty(scores.shape, dtype=torch.int64)
    return _padded(torch.ops.torchvision.nms(boxes, scores, overlap), len(scores))


_NONZERO = _define("nonzero(Tensor x) -> Tensor", _places)
_DISTINCT = _define(
    "distinct(Tensor x, bool is_sorted, bool neighbours) -> (Tensor, Tensor, Tensor)", _distinct
)
_NMS = _define("nms(Tensor boxes, Tensor scores, float overlap) -> Tensor", _suppressed)


def _nonzero(x: Any) -> Any:
    """``nonzero``: a row of indices for each number that is not zero."""
    columns = _columns(x)
    if len(columns) == 1:
        return columns[0].unsqueeze(-1)
    empty = x.new_empty((1, 0), dtype=torch.int64)  # of a scalar
    return torch.stack(columns, -1) if columns else empty


def _columns(x: Any) -> list[Any]:
    places = _NONZERO(x.reshape(-1))
    columns = []
    for axis, extent in enumerate(x.shape):
        step = math.prod(x.shape[axis + 1 :])
        index = places // step if step > 1 else places
        columns.append(index % extent if axis else index)
    return columns


def _masked_index(x: Any, indices: list[Any]) -> Any:
    """``x[mask]``, with a mask of some neighbouring axes and no other index."""
    masks = [index for index in indices if index is not None]
    if len(masks) != 1 or masks[0].dtype not in {torch.bool, torch.uint8}:
        return NotImplemented
    [mask], before = masks, next(at for at, index in enumerate(indices) if index is not None)
    after = before + mask.ndim
    flat = x.reshape(*x.shape[:before], mask.numel(), *x.shape[after:])
    return flat.index_select(before, _NONZERO(mask.reshape(-1)))


def _masked_select(x: Any, mask: Any) -> Any:
    x, mask = torch.broadcast_tensors(x, mask)
    return x.reshape(-1).index_select(0, _NONZERO(mask.reshape(-1)))


def _unique(
    x: Any,
    is_sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    *,
    neighbours: bool = False,
) -> Any:
    flat = x.reshape(-1)
    places, inverse, counts = _DISTINCT(flat, is_sorted, neighbours)
    nothing = flat.new_empty(0, dtype=torch.int64)
    return (
        flat.index_select(0, places),
        inverse.reshape(x.shape) if return_inverse else nothing,
        counts if return_counts else nothing,
    )


def _unique_consecutive(
    x: Any, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    if dim is not None and x.ndim != 1:
        return NotImplemented
    return _unique(x, True, return_inverse, return_counts, neighbours=True)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    _ATEN.nonzero.default: _nonzero,
    _ATEN.nonzero_numpy.default: _columns,
    _ATEN.index.Tensor: _masked_index,
    _ATEN.masked_select.default: _masked_select,
    _ATEN._unique2.default: _unique,  # noqa: SLF001 - the operator has this name
    _ATEN.unique_consecutive.default: _unique_consecutive,
}
"""Functions of torch that are traced instead of an operator, by operator."""


def decompositions() -> dict[Any, Callable[..., Any]]:
    """``DECOMPOSITIONS``, and that of an operator of torchvision if it is known."""
    if not hasattr(torch.ops.torchvision, "nms"):
        return DECOMPOSITIONS
    return {**DECOMPOSITIONS, torch.ops.torchvision.nms.default: _NMS}


def _convert_distinct(call: TorchCall) -> Any:
    is_sorted, neighbours = call.node.args[1:]
    return counted.distinct(
        call.importer.block_builder,
        call.value(0),
        call.importer.counted_axes(call.value(0)),
        is_sorted=bool(is_sorted),
        neighbours=bool(neighbours),
    )


def _convert_nms(call: TorchCall) -> Any:
    builder, op = call.importer.block_builder, counted.relax.op
    boxes, scores = call.value(0), call.value(1)
    [count], axes = call.shape, call.importer.counted_axes(scores)
    kept = counted.Suppression(most=count, is_plain=True).apply(
        builder,
        call.emit(op.reshape(boxes, [1, count, 4])),
        call.emit(op.reshape(scores, [1, 1, count])),
        counted.relax.const(call.node.args[2], "float64"),
        None,
        axes=dict(zip([2], axes.values(), strict=False)),
    )
    return op.squeeze(call.emit(op.strided_slice(kept, [1], [2], [3])), [1])


CONVERTERS: dict[str, Converter] = {
    "nonzero.default": lambda call: counted.nonzero_places(
        call.importer.block_builder, call.value(0), call.importer.counted_axes(call.value(0))
    ),
    "distinct.default": _convert_distinct,
    "nms.default": _convert_nms,
}
"""Converters by the name of the operator."""

_SHAPED = {
    *(_ATEN.view.default, _ATEN.reshape.default, _ATEN._unsafe_view.default),  # noqa: SLF001
    *(_ATEN.sym_constrain_range.default, _ATEN.sym_constrain_range_for_size.default),
    *(_ATEN._assert_scalar.default, _ATEN._assert_async.msg),  # noqa: SLF001
}
"""Operators that may read a size which depends on values."""


def readers_of_sizes(program: Any) -> Iterator[Any]:
    """Nodes that compute with a size which depends on values, or count elements from its end."""
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.target is _ATEN.slice.Tensor and _is_from_end(node):
            yield node
        if isinstance(value, torch.Tensor) and node.target not in _SHAPED:
            sizes = (one.meta.get("val") for one in node.all_input_nodes)
            if any(_is_size(size) for size in sizes):
                yield node
        elif node.op == "output" and any(
            _is_size(one.meta.get("val")) for one in node.all_input_nodes
        ):
            yield node


def _is_size(value: Any) -> bool:
    is_number = isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)
    return is_number and bool(free_unbacked_symbols(value))


def _is_from_end(node: Any) -> bool:
    """Whether a slice counts elements from the last one, along an axis of unknown size."""
    _, axis, *ends = (*node.args, 0)[:4] if len(node.args) == 1 else node.args[:4]
    extent = node.args[0].meta["val"].shape[axis]
    return _is_size(extent) and any(isinstance(end, int) and end < 0 for end in ends)

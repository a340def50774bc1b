"""Rewrites torch operators that order, count, choose and scatter numbers with simpler ones.

Results whose size depends on values, such as those of ``nonzero``, have the largest possible size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from chameleon_tvm.api import UINT8
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from chameleon_networks._graph import counted
from chameleon_networks._graph.relax_utils import relax
from chameleon_networks._importers.torch.lowering.torch_calls import Converter, TorchCall

_ATEN = torch.ops.aten


def _kthvalue(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """``kthvalue``: the number with a rank, and its index."""
    if x.ndim == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    return tuple(
        part.narrow(dim, k - 1, 1) if keepdim else part.select(dim, k - 1)
        for part in torch.sort(x, dim)
    )


def _stable_sort(
    x: Any, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> Any:
    """``sort``; TVM's sort is always stable."""
    del stable
    return torch.sort(x, dim, descending)


def _median(x: Any, dim: int, keepdim: bool = False, *, skips_nan: bool = False) -> Any:
    """``median`` and ``nanmedian``: the lower one of two. NaN comes after all numbers."""
    if x.ndim == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    count = x.shape[dim] - x.isnan().sum(dim, keepdim=True)
    rank = ((count - 1) // 2).clamp(min=0)
    if not skips_nan:
        rank = torch.where(count < x.shape[dim], count, rank)
    results = (part.gather(dim, rank) for part in torch.sort(x, dim))
    return tuple(result if keepdim else result.squeeze(dim) for result in results)


def _scan(join: Callable[..., Any], numbers: tuple[Any, ...], dim: int) -> tuple[Any, ...]:
    """Combine each number along an axis with all before it, by Hillis and Steele's scan."""
    length, reach = numbers[0].shape[dim], 1
    while reach < length:
        earlier = [x.narrow(dim, 0, length - reach) for x in numbers]
        joined = join(*earlier, *(x.narrow(dim, reach, length - reach) for x in numbers))
        pairs = zip(numbers, joined, strict=True)
        numbers = tuple(torch.cat([x.narrow(dim, 0, reach), new], dim) for x, new in pairs)
        reach *= 2
    return numbers


def _cumulative_extremum(reaches: Any, x: Any, dim: int) -> Any:
    """``cummax`` and ``cummin``; the index is that of the last of equal numbers."""
    if x.ndim == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)

    def join(before: Any, earlier: Any, value: Any, place: Any) -> Any:
        later = reaches(value, before) | (value != value)  # noqa: PLR0124 - NaN is an extremum
        return torch.where(later, value, before), torch.where(later, place, earlier)

    places = torch.arange(x.shape[dim]).reshape(-1, *[1] * (x.ndim - 1 - dim % x.ndim))
    return _scan(join, (x, places.expand(x.shape)), dim)


def _logcumsumexp(x: Any, dim: int) -> Any:
    """``logcumsumexp``."""
    return _scan(lambda *pair: (torch.logaddexp(*pair),), (x,), dim)[0] if x.ndim else x.clone()


def _searchsorted(sequence: Any, numbers: Any, **options: Any) -> Any:
    """``searchsorted`` by torch's bisection, which also defines the places of NaN."""
    if options.get("sorter") is not None:
        sequence = sequence.gather(-1, options["sorter"])
    right, count = options.get("right") or options.get("side") == "right", sequence.shape[-1]
    start = torch.zeros_like(numbers, dtype=torch.int64)
    end = start + count
    for _ in range(count.bit_length()):
        middle = (start + end) // 2
        at = middle.clamp(max=count - 1)
        value = torch.take(sequence, at) if sequence.ndim == 1 else sequence.gather(-1, at)
        before = value > numbers if right else value >= numbers
        start, end = (
            torch.where((start < end) & ~before, middle + 1, start),
            torch.where((start < end) & before, middle, end),
        )
    return start.to(torch.int32 if options.get("out_int32") else torch.int64)


def _unsorted_topk(
    x: Any, k: int, dim: int = -1, largest: bool = True, in_order: bool = True
) -> Any:
    """``topk`` with ``sorted=False``, for which any order of the results is right."""
    return NotImplemented if in_order else torch.topk(x, k, dim, largest)


def _bin_edges(x: Any, count: int, ends: Any) -> Any:
    """Edges of equal intervals, as ``linspace`` computes them."""
    if ends is None and x.numel():
        low, high = x.min(), x.max()
    else:
        low, high = (torch.full((), end, dtype=x.dtype) for end in ends or (0.0, 1.0))
    low, high = torch.where(low == high, low - 0.5, low), torch.where(low == high, high + 0.5, high)
    step, places = (high - low) / count, torch.arange(count + 1)
    return torch.where(
        places < (count + 1) // 2, low + step * places, high - step * (count - places)
    )


def _histogram_counts(x: Any, edges: Any, *, weight: Any = None, density: bool = False) -> Any:
    """A histogram: weights of the points of each cell, whose last edges belong to it."""
    axes = len(edges)
    x = x.reshape(-1, axes)
    counts = torch.ones_like(x[:, 0]) if weight is None else weight.reshape(-1)
    for axis, axis_edges in enumerate(edges):
        numbers, last = (x[:, axis, None], torch.arange(len(axis_edges) - 1) == len(axis_edges) - 2)
        member = (numbers >= axis_edges[:-1]) & (
            (numbers < axis_edges[1:]) | (last & (numbers == axis_edges[1:]))
        )
        counts = counts.unsqueeze(-1) * member.reshape(len(x), *[1] * axis, len(axis_edges) - 1)
    result = counts.sum(0)
    if density:
        result = result / result.sum()
        for axis, axis_edges in enumerate(edges):
            result = result / (axis_edges[1:] - axis_edges[:-1]).reshape(
                -1, *[1] * (axes - 1 - axis)
            )
    return result


def _histogram(x: Any, bins: int, *, range: Any = None, **options: Any) -> Any:  # noqa: A002
    edges = _bin_edges(x, bins, range)
    return _histogram_counts(x, [edges], **options), edges


def _histogramdd_edges(x: Any, bins: list[int], *, range: Any = None, **_: Any) -> Any:  # noqa: A002
    ends = [None] * len(bins) if range is None else zip(range[::2], range[1::2], strict=True)
    points = x.reshape(-1, len(bins)).unbind(-1)
    return [_bin_edges(*arguments) for arguments in zip(points, bins, ends, strict=True)]


def _histogramdd(x: Any, bins: list[int], *, range: Any = None, **options: Any) -> Any:  # noqa: A002
    return _histogram_counts(x, _histogramdd_edges(x, bins, range=range), **options)


_IDENTITY = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "amax": -math.inf, "amin": math.inf}
"""The identity element of each reduction, by torch's name."""


def _scatter_reduce(
    x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """``scatter_reduce`` to means, or without the numbers of the input (``include_self=False``)."""
    if not x.is_floating_point() or (include_self and reduce != "mean"):
        return NotImplemented
    ones = torch.ones(index.shape, dtype=x.dtype, device=x.device)
    count = torch.zeros_like(x).scatter_add(dim, index, ones)
    initial = x if include_self else torch.where(count > 0, _IDENTITY[reduce], x)
    if reduce != "mean":
        return initial.scatter_reduce(dim, index, source, reduce)
    total = initial.scatter_add(dim, index, source)
    return total / (count + 1.0 if include_self else count.clamp(min=1.0))


def _segment_reduce(
    x: Any, reduce: str, *, axis: int = 0, initial: float | None = None, **segments: Any
) -> Any:
    """``segment_reduce``: reductions of parts of an axis that follow each other."""
    offsets = segments.get("offsets")
    if offsets is None:
        ends = segments["lengths"].cumsum(-1)
        starts = ends - segments["lengths"]
    else:
        starts, ends = offsets[..., :-1], offsets[..., 1:]
    places, inner = torch.arange(x.shape[axis]), [1] * (x.ndim - 1 - axis)
    member = (places >= starts.unsqueeze(-1)) & (places < ends.unsqueeze(-1))
    member = member.reshape(*member.shape, *inner)
    name = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    first = _IDENTITY[name] if initial is None else initial
    parts = torch.where(member, x.unsqueeze(axis), _IDENTITY[name])
    if reduce in {"max", "min"}:
        integer_value = torch.full_like(parts.narrow(axis + 1, 0, 1), first)
        return getattr(torch.cat([parts, integer_value], axis + 1), name)(axis + 1)
    if reduce == "prod":
        return parts.prod(axis + 1) * first
    total = parts.sum(axis + 1) + first
    if reduce == "sum":
        return total
    count = (ends - starts).reshape(*ends.shape, *inner)
    return torch.where(count > 0, total / count, math.nan if initial is None else initial)


def _index_reduce(
    x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """``index_reduce``, whose index has one axis, as ``scatter_reduce``."""
    if x.ndim == 0:
        return _index_reduce(
            x.reshape(1), 0, index, source.reshape(1), reduce, include_self=include_self
        ).reshape(())
    shape = [1] * x.ndim
    shape[dim] = -1
    where = index.reshape(shape).expand(source.shape)
    return x.scatter_reduce(dim, where, source, reduce, include_self=include_self)


def _scatter_value(x: Any, dim: int, index: Any, value: float, *, reduce: str) -> Any:
    source = torch.full(index.shape, value, dtype=x.dtype)
    return _scatter_source(x, dim, index, source, reduce=reduce)


def _scatter_source(x: Any, dim: int, index: Any, source: Any, *, reduce: str) -> Any:
    kind = {"add": "sum", "multiply": "prod"}[reduce]
    part = source[tuple(slice(extent) for extent in index.shape)]
    return x.scatter_reduce(dim, index, part, kind)


def _put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    flat = x.reshape(-1).index_put((index.reshape(-1),), source.reshape(-1), accumulate)
    return flat.reshape(x.shape)


def _diagonal_scatter(x: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """``diagonal_scatter``."""
    moved = x.movedim((dim1, dim2), (0, 1))
    places = torch.arange(source.shape[-1])
    rows, columns = places + max(-offset, 0), places + max(offset, 0)
    result = moved.index_put((rows, columns), source.movedim(-1, 0))
    return result.movedim((0, 1), (dim1, dim2))


def _nonzero_static(x: Any, *, size: int, fill_value: int = -1) -> Any:
    """``nonzero_static``: the places of the first numbers that are not zero."""
    chosen = x.reshape(-1) != 0
    rank = chosen.cumsum(0) - 1
    row = torch.where(chosen, rank.clamp(max=size), size)
    places = torch.full((size + 1,), -1).scatter(0, row, torch.arange(len(row)))[:size]
    steps = [math.prod(x.shape[axis + 1 :]) for axis in range(x.ndim)]
    pairs = zip(x.shape, steps, strict=True)
    axes = [places // max(step, 1) % max(extent, 1) for extent, step in pairs]
    found = torch.stack(axes, -1) if axes else places.new_zeros(size, 0)
    return torch.where(places.unsqueeze(-1) < 0, fill_value, found)


def _masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    mask = mask.expand(shape)
    index = (mask.reshape(-1).cumsum(0) - 1).clamp(0, source.numel() - 1).reshape(shape)
    return torch.where(mask, source.reshape(-1)[index], x.expand(shape))


def _histc(x: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:  # noqa: A002
    """``histc``: counts of numbers in equal intervals, of which the last includes its end."""
    if not x.numel():
        return x.new_zeros(bins)
    x = x.reshape(-1)
    low, high = (x.min(), x.max()) if min == max else (min, max)
    if min == max:
        low, high = torch.where(low == high, low - 1, low), torch.where(low == high, high + 1, high)
    place = ((x - low) * bins / (high - low)).floor().clamp(max=bins - 1)
    member = (place == torch.arange(bins).unsqueeze(-1)) & (x >= low) & (x <= high)
    return member.sum(1).to(x.dtype)


_LIBRARY = torch.library.Library("chameleon", "DEF")
"""Operators that exist only between the export of a program and its import."""


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


_NONZERO = _define("places(Tensor x) -> Tensor", _places)
_DISTINCT = _define(
    "distinct(Tensor x, bool is_sorted, bool neighbours) -> (Tensor, Tensor, Tensor)", _distinct
)
_NMS = _define("suppressed(Tensor boxes, Tensor scores, float overlap) -> Tensor", _suppressed)


def _nonzero(x: Any) -> Any:
    """``nonzero``: a row of indices for each number that is not zero."""
    columns = _columns(x)
    if columns is NotImplemented:
        return columns
    return columns[0].unsqueeze(-1) if len(columns) == 1 else torch.stack(columns, -1)


def _columns(x: Any) -> Any:
    """The index along each axis of the numbers that are not zero."""
    if not x.ndim:
        return NotImplemented
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
    if len(masks) != 1 or masks[0].dtype not in {torch.bool, getattr(torch, UINT8)}:
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
    _ATEN.topk.default: _unsorted_topk,
    _ATEN.kthvalue.default: _kthvalue,
    _ATEN.searchsorted.Tensor: _searchsorted,
    _ATEN.searchsorted.Scalar: lambda sequence, number, **options: _searchsorted(
        sequence, torch.full((), number, dtype=sequence.dtype), **options
    ),
    _ATEN.bucketize.Tensor: lambda x, edges, **options: _searchsorted(edges, x, **options),
    _ATEN.histogram.bin_ct: _histogram,
    _ATEN.histogram.bins_tensor: lambda x, edges, **options: (
        _histogram_counts(x, [edges], **options),
        edges.clone(),
    ),
    _ATEN._histogramdd_bin_edges.default: _histogramdd_edges,  # noqa: SLF001 - the operator has this name
    _ATEN._histogramdd_from_bin_cts.default: _histogramdd,  # noqa: SLF001
    _ATEN._histogramdd_from_bin_tensors.default: _histogram_counts,  # noqa: SLF001
    _ATEN.sort.stable: _stable_sort,
    _ATEN.median.dim: _median,
    _ATEN.median.default: lambda x: _median(x.reshape(-1), 0)[0],
    _ATEN.nanmedian.dim: partial(_median, skips_nan=True),
    _ATEN.nanmedian.default: lambda x: _median(x.reshape(-1), 0, skips_nan=True)[0],
    _ATEN.cummax.default: partial(_cumulative_extremum, torch.ge),
    _ATEN.cummin.default: partial(_cumulative_extremum, torch.le),
    _ATEN.logcumsumexp.default: _logcumsumexp,
    _ATEN.index_reduce.default: _index_reduce,
    _ATEN.scatter.value_reduce: _scatter_value,
    _ATEN.scatter.reduce: _scatter_source,
    _ATEN.nonzero_static.default: _nonzero_static,
    _ATEN.segment_reduce.default: _segment_reduce,
    _ATEN.put.default: _put,
    _ATEN.take.default: lambda x, index: x.reshape(-1)[index.reshape(-1)].reshape(index.shape),
    _ATEN.histc.default: _histc,
    _ATEN.diagonal_scatter.default: _diagonal_scatter,
    _ATEN.masked_scatter.default: _masked_scatter,
    _ATEN.scatter_reduce.two: _scatter_reduce,
    _ATEN.nonzero.default: _nonzero,
    _ATEN.nonzero_numpy.default: _columns,
    _ATEN.index.Tensor: _masked_index,
    _ATEN.masked_select.default: _masked_select,
    _ATEN._unique2.default: _unique,  # noqa: SLF001 - the operator has this name
    _ATEN.unique_consecutive.default: _unique_consecutive,
}
"""Functions of torch that are traced instead of an operator, by operator."""


def of_torchvision() -> dict[Any, Callable[..., Any]]:
    """Functions that are traced instead of torchvision's operators, if these are known."""
    has_operator = hasattr(torch.ops.torchvision, "nms")
    return {torch.ops.torchvision.nms.default: _NMS} if has_operator else {}


def _convert_distinct(call: TorchCall) -> Any:
    is_sorted, neighbours = call.node.args[1:]
    return counted.distinct(
        call.importer.block_builder,
        call.value(0),
        call.importer.counted.of(call.value(0)),
        is_sorted=bool(is_sorted),
        neighbours=bool(neighbours),
    )


def _convert_nms(call: TorchCall) -> Any:
    builder, op = call.importer.block_builder, relax.op
    boxes, scores = call.value(0), call.value(1)
    [count], axes = call.shape, call.importer.counted.of(scores)
    kept = counted.Suppression(most=count, is_plain=True).apply(
        builder,
        call.emit(op.reshape(boxes, [1, count, 4])),
        call.emit(op.reshape(scores, [1, 1, count])),
        relax.const(call.node.args[2], "float64"),
        None,
        axes=dict(zip([2], axes.values(), strict=False)),
    )
    return op.squeeze(call.emit(op.strided_slice(kept, [1], [2], [3])), [1])


CONVERTERS: dict[str, Converter] = {
    "places.default": lambda call: counted.nonzero_places(
        call.importer.block_builder, call.value(0), call.importer.counted
    ),
    "distinct.default": _convert_distinct,
    "suppressed.default": _convert_nms,
}
"""Converters by the name of the operator."""

_SHAPED = {
    *(_ATEN.view.default, _ATEN.reshape.default, _ATEN._unsafe_view.default),  # noqa: SLF001
    *(_ATEN.sym_constrain_range.default, _ATEN.sym_constrain_range_for_size.default),
    *(_ATEN._assert_scalar.default, _ATEN._assert_async.msg),  # noqa: SLF001
}
"""Operators that may read a size which depends on values."""


def readers_of_sizes(program: Any) -> Iterator[Any]:
    """Nodes that need a size which depends on values to be a number."""
    for node in program.graph.nodes:
        value = node.meta.get("val")
        sizes = (one.meta.get("val") for one in node.all_input_nodes)
        shape = value.shape if isinstance(value, torch.Tensor) else ()
        # Symbols must not be compared.
        is_empty = any(isinstance(extent, int) and extent == 0 for extent in shape)
        needs_size = is_empty or node.target is _ATEN.squeeze.default
        reads_size = isinstance(value, torch.Tensor) or node.op == "output"
        if (
            (reads_size and node.target not in _SHAPED and any(map(_is_size, sizes)))
            or (node.target is _ATEN.slice.Tensor and _is_from_end(node))
            or (needs_size and any(map(_is_size, shape)))
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

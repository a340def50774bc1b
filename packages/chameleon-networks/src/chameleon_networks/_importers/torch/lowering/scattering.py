"""Rewrites torch's scatters, and reductions of parts of a tensor, with simpler operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

_ATEN = torch.ops.aten

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


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
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
}
"""Functions of torch that are traced instead of an operator, by operator."""

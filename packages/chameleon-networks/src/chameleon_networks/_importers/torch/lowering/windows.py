"""Converts torch operators on windows: max pooling with indices, ``unfold`` and others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

_ATEN = torch.ops.aten


def _window_indices(
    extent: int, size: int, step: int, margin: int, spread: int, *, ceil: bool
) -> Any:
    """The indices of each window along an axis, of shape (windows, size)."""
    # An index outside of the input is replaced by another one of the same window.
    reach = spread * (size - 1) + 1
    count = (extent + 2 * margin - reach + (step - 1 if ceil else 0)) // step + 1
    if ceil and (count - 1) * step >= extent + margin:
        count -= 1
    first = (torch.arange(count) * step - margin)[:, None]
    places = first + torch.arange(size) * spread
    last = first + (extent - 1 - first) // spread * spread
    return torch.minimum(torch.where(places < 0, first % spread, places), last)


def _adaptive_window_indices(extent: int, count: int) -> Any:
    """The indices of each window of adaptive pooling along an axis, of shape (windows, width)."""
    bounds = list(map(partial(_adaptive_bounds, extent, count), range(count)))
    number = torch.arange(count)[:, None]
    width = torch.arange(max((end - start for start, end in bounds), default=0))
    last = ((number + 1) * extent + count - 1) // count - 1
    return torch.minimum(number * extent // count + width, last)


def _adaptive_bounds(extent: int, count: int, number: int) -> tuple[int, int]:
    """The start and the end of a window of adaptive pooling."""
    return number * extent // count, -(-(number + 1) * extent // count)


def _max_with_indices(x: Any, windows: Sequence[Any]) -> tuple[Any, Any]:
    """The largest number of each window, and its index in the image; NaN is largest."""
    before, images = x.ndim - len(windows), x.shape[x.ndim - len(windows) :]
    flat = torch.arange(1).squeeze(0)
    for axis, index in enumerate(windows):
        x = x.index_select(before + 2 * axis, index.flatten())
        x = x.unflatten(before + 2 * axis, index.shape)
        flat = flat[..., None, None] * images[axis] + index
    counts = [*range(before), *range(before, x.ndim, 2)]
    widths = range(before + 1, x.ndim, 2)
    x = x.permute(*counts, *widths).flatten(len(counts))
    flat = flat.permute(*(axis - before for axis in (*counts[before:], *widths)))
    flat = flat.flatten(len(windows)).expand(x.shape)
    last = torch.where(x.isnan(), torch.arange(x.shape[-1]), 0).amax(-1, keepdim=True)
    index = torch.maximum(x.argmax(-1, keepdim=True), last)
    return x.amax(-1), flat.gather(-1, index).squeeze(-1)


def _max_pool_with_indices(x: Any, size: list[int], *more: Any) -> Any:
    """Max pooling with indices. Its further arguments may end anywhere."""
    defaults: tuple[Any, ...] = ((), (0,), (1,), False)
    stride, padding, dilation, ceil_mode = (*more, *defaults[len(more) :])
    given = (size, stride or size, padding, dilation)
    options = [list(option) * (len(size) // len(option)) for option in given]
    along = zip(x.shape[-len(size) :], *options, strict=True)
    return _max_with_indices(x, [_window_indices(*option, ceil=ceil_mode) for option in along])


def _adaptive_max_pool(x: Any, size: list[int]) -> Any:
    """Adaptive max pooling with indices, which are removed later if nothing reads them."""
    windows, values = [], x
    for axis, count in enumerate(size, x.ndim - len(size)):
        extent = x.shape[axis]
        windows.append(_adaptive_window_indices(extent, count))
        bounds = map(partial(_adaptive_bounds, extent, count), range(count))
        parts = [values.narrow(axis, start, end - start) for start, end in bounds]
        parts = [part.amax(axis, keepdim=True) for part in parts]
        values = parts[0] if len(parts) == 1 else torch.cat(parts, axis)
    return values, _max_with_indices(x, windows)[1]


def _unfold(x: Any, dimension: int, size: int, step: int) -> Any:
    """``Tensor.unfold``: windows along an axis; the result's last axis runs through a window."""
    dimension %= max(x.ndim, 1)
    if x.ndim == 0:
        return x.reshape(1).narrow(0, 0, size)
    index = _window_indices(x.shape[dimension], size, step, 0, 1, ceil=False)
    parts = x.index_select(dimension, index.flatten())
    return parts.unflatten(dimension, index.shape).movedim(dimension + 1, -1)


def _as_strided(x: Any, size: list[int], stride: list[int], offset: int | None = None) -> Any:
    """``as_strided`` of a contiguous tensor, or of a permutation of one."""
    x = x.permute(_memory_order(x))
    first = _first_offset(x, size, stride, offset)
    if first is None:
        return NotImplemented
    if tuple(stride) == torch.empty(size, device="meta").stride():
        return x.reshape(-1).narrow(0, first, math.prod(size)).reshape(size)
    return x.reshape(-1)[_addresses(first, size, stride)]


def _as_strided_scatter(
    x: Any, source: Any, size: list[int], stride: list[int], offset: int | None = None
) -> Any:
    """``as_strided_scatter``, likewise."""
    order = _memory_order(x)
    x = x.permute(order)
    first = _first_offset(x, size, stride, offset)
    if first is None:
        return NotImplemented
    index = _addresses(first, size, stride).flatten()
    scattered = x.reshape(-1).index_put((index,), source.reshape(-1)).reshape(x.shape)
    return scattered.permute([order.index(axis) for axis in range(x.ndim)])


def _memory_order(x: Any) -> list[int]:
    """The axes of a tensor in the order of its memory."""
    return sorted(range(x.ndim), key=x.stride, reverse=True)


def _roll(x: Any, shifts: list[int], dims: Sequence[int] = ()) -> Any:
    """``roll`` of channels last, whose result is channels last, unlike that of torch's export."""
    if x.is_contiguous() or not dims:
        return NotImplemented
    for shift, axis in zip(shifts, dims, strict=True):
        start = -shift % max(1, x.shape[axis])
        ends = x.narrow(axis, start, x.shape[axis] - start), x.narrow(axis, 0, start)
        x = torch.cat(ends, axis)
    return x


def _first_offset(
    x: Any, size: Sequence[int], stride: Sequence[int], offset: int | None
) -> int | None:
    """The first element that strides address, or None if the tensor is too small."""
    first = 0 if offset is None else int(offset - x.storage_offset())
    last = first + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    return first if x.is_contiguous() and first >= 0 and last < x.numel() else None


def _addresses(first: int, size: Sequence[int], stride: Sequence[int]) -> Any:
    address = torch.full((), first, dtype=torch.int64)
    for extent, step in zip(size, stride, strict=True):
        address = address[..., None] + torch.arange(extent) * step
    return address


def _conv_transpose(*args: Any) -> Any:
    """A transposed convolution as a convolution over its input with zeros in between."""
    # For computed weights, the transposed convolution of TVM has no dilation, groups, or third
    # axis.
    x, weight, bias, stride, padding, dilation, transposed, output_padding, groups = args
    axes, volumes = x.ndim - 2, 3
    if not transposed or (max(dilation) == 1 and groups == 1 and axes != volumes):
        return NotImplemented
    for axis, step in enumerate(stride, 2):
        if step > 1:
            zeros = x.new_zeros((*x.shape[: axis + 1], step - 1, *x.shape[axis + 1 :]))
            extent = (x.shape[axis] - 1) * step + 1
            x = torch.cat([x.unsqueeze(axis + 1), zeros], axis + 1).flatten(axis, axis + 1)
            x = x.narrow(axis, 0, extent)
    low = [
        step * (extent - 1) - margin
        for step, extent, margin in zip(dilation, weight.shape[2:], padding, strict=True)
    ]
    high = [width + more for width, more in zip(low, output_padding, strict=True)]
    pads = [width for pair in zip(reversed(low), reversed(high), strict=True) for width in pair]
    weight = weight.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
    weight = weight.flip(list(range(2, x.ndim)))
    none = [0] * axes
    x, ones = torch.nn.functional.pad(x, pads), [1] * axes
    return _ATEN.convolution.default(x, weight, bias, ones, none, dilation, False, none, groups)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    _ATEN.adaptive_max_pool2d.default: _adaptive_max_pool,
    _ATEN.adaptive_max_pool3d.default: _adaptive_max_pool,
    _ATEN.unfold.default: _unfold,
    _ATEN.as_strided.default: _as_strided,
    _ATEN.as_strided_copy.default: _as_strided,
    _ATEN.as_strided_scatter.default: _as_strided_scatter,
    _ATEN.roll.default: _roll,
}
"""Functions of torch that are traced instead of an operator, by operator."""

FALLBACK_DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    _ATEN.convolution.default: _conv_transpose,
    _ATEN.max_pool2d_with_indices.default: _max_pool_with_indices,
    _ATEN.max_pool3d_with_indices.default: _max_pool_with_indices,
}
"""Functions like those of ``DECOMPOSITIONS``, for operators whose second result is read or whose
weights are computed."""

"""Operators of torch on the order of numbers: ranks, and running extremes."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

_ATEN = torch.ops.aten


def _of_rank(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """``kthvalue``: the number, and where it was."""
    if x.ndim == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    return tuple(
        part.narrow(dim, k - 1, 1) if keepdim else part.select(dim, k - 1)
        for part in torch.sort(x, dim)
    )


def _in_order(x: Any, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    """``sort``; TVM's is stable always."""
    del stable
    return torch.sort(x, dim, descending)


def _middle(x: Any, dim: int, keepdim: bool = False) -> Any:
    """``nanmedian``: the lower one of two in the middle of what is a number."""
    empty = x.isnan()
    count = x.shape[dim] - empty.sum(dim, keepdim=True)
    rank = ((count - 1) // 2).clamp(min=0)
    values, places = (
        part.gather(dim, rank) for part in torch.sort(torch.where(empty, math.inf, x), dim)
    )
    results = torch.where(count > 0, values, math.nan), places
    return results if keepdim else tuple(result.squeeze(dim) for result in results)


def _middle_of_all(x: Any) -> Any:
    return _middle(x.reshape(-1), 0)[0]


def _earlier(x: Any, dim: int, neutral: float) -> tuple[Any, Any]:
    """For each number along an axis those up to it in a last axis, and which of that are."""
    x = x.movedim(dim, -1)
    places = torch.arange(x.shape[-1])
    before = places <= places[:, None]
    return torch.where(before, x.unsqueeze(-2), neutral), before


def _running(extreme: Any, neutral: float, x: Any, dim: int) -> Any:
    """``cummax`` and ``cummin``: of equal numbers the last one."""
    if x.ndim == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    numbers, before = _earlier(x, dim, neutral)
    values = extreme(numbers, -1)
    same = before & (numbers == values.unsqueeze(-1))
    places = torch.where(same, torch.arange(x.shape[dim]), 0).amax(-1)
    return values.movedim(-1, dim), places.movedim(-1, dim)


def _running_log_sum(x: Any, dim: int) -> Any:
    """``logcumsumexp``."""
    if x.ndim == 0:
        return x.clone()
    return torch.logsumexp(_earlier(x, dim, -math.inf)[0], -1).movedim(-1, dim)


def _place(
    order: Any,
    numbers: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """``searchsorted``: how many numbers in an order are less."""
    if sorter is not None:
        order = order.gather(-1, sorter)
    pairs = order.unsqueeze(-2), numbers.unsqueeze(-1)
    less = torch.le(*pairs) if right or side == "right" else torch.lt(*pairs)
    return less.sum(-1).to(torch.int32 if out_int32 else torch.int64)


def _greatest(
    x: Any,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,  # noqa: A002
) -> Any:
    """``topk`` without an order, which any order meets."""
    return NotImplemented if sorted else torch.topk(x, k, dim, largest)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    _ATEN.topk.default: _greatest,
    _ATEN.kthvalue.default: _of_rank,
    _ATEN.searchsorted.Tensor: _place,
    _ATEN.sort.stable: _in_order,
    _ATEN.nanmedian.dim: _middle,
    _ATEN.nanmedian.default: _middle_of_all,
    _ATEN.cummax.default: partial(_running, torch.amax, -math.inf),
    _ATEN.cummin.default: partial(_running, torch.amin, math.inf),
    _ATEN.logcumsumexp.default: _running_log_sum,
}
"""Functions of torch that are traced in the place of an operator, by operator."""

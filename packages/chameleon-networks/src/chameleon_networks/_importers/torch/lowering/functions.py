"""Replaces functions that torch cannot export, or exports wrongly, by others with equal results."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode


def _covariance(
    input: Any,  # noqa: A002 - torch's name, which a caller may write
    *,
    correction: int = 1,
    fweights: Any = None,
    aweights: Any = None,
) -> Any:
    """``cov``; torch's own asks whether its divisor is positive."""
    x = input.reshape(input.shape if input.ndim > 1 else (1, -1))
    if fweights is None and aweights is None:
        x = x - x.sum(1, keepdim=True) / x.shape[1]  # sums of integers wrap, as in torch
        return (x @ x.mT / max(x.shape[1] - correction, 0)).squeeze()
    counts: Any = 1 if fweights is None else fweights
    weights = counts * (1 if aweights is None else aweights)
    total = weights.sum()
    weight_lost = 1 if aweights is None else (weights * aweights).sum() / total
    x = x - (x * weights).sum(1, keepdim=True) / total
    return (x @ (x * weights).mT / (total - correction * weight_lost).clamp(min=0)).squeeze()


def _correlation(input: Any) -> Any:  # noqa: A002 - torch calls the argument so
    """``corrcoef``."""
    covariance = _covariance(input)
    if covariance.ndim == 0:
        return covariance / covariance
    deviation = covariance.diagonal().sqrt()
    return (covariance / deviation.unsqueeze(-1) / deviation).clamp(-1.0, 1.0)


def _least_squares(
    input: Any,  # noqa: A002 - torch calls the argument so
    b: Any,
    rcond: Any = None,
    *,
    driver: Any = None,
) -> Any:
    """``lstsq`` by singular values, cut off by ``rcond``; residuals are of full rank."""
    a, vector = input, b.ndim == input.ndim - 1
    b = b.unsqueeze(-1) if vector else b
    if driver == "gels":  # it takes the matrix for one of full rank
        return _full_rank_least_squares(a, b, vector)
    u, values, v = torch.linalg.svd(a, full_matrices=False)
    least = max(a.shape[-2:]) * torch.finfo(a.dtype).eps if rcond is None else rcond
    nonzero = values > least * values[..., :1]
    divisors = torch.where(nonzero, values, 1.0).unsqueeze(-1)
    solution = v.mT @ torch.where(nonzero.unsqueeze(-1), u.mT @ b / divisors, 0.0)
    tall = a.shape[-2] > a.shape[-1] and driver not in {None, "gelsy"}
    residuals = ((a @ solution - b) ** 2).sum(-2) if tall else a.new_empty(0)
    solution = solution.squeeze(-1) if vector else solution
    rank = nonzero.sum(-1)
    values = values if driver in {"gelsd", "gelss"} else a.new_empty(0)
    return torch.return_types.linalg_lstsq((solution, residuals, rank, values))


def _full_rank_least_squares(a: Any, b: Any, vector: bool) -> Any:
    """``lstsq`` by Householder's reflections."""
    tall, solve = a.shape[-2] >= a.shape[-1], torch.linalg.solve_triangular
    q, r = torch.linalg.qr(a if tall else a.mT)
    solution = solve(r, q.mT @ b, upper=True) if tall else q @ solve(r.mT, b, upper=False)
    nothing = (a == 0).all(-1, keepdim=True).all(-2, keepdim=True)
    solution, empty = torch.where(nothing, 0.0, solution), a.new_empty(0)  # as LAPACK
    residuals = ((a @ solution - b) ** 2).sum(-2) if a.shape[-2] > a.shape[-1] else empty
    solution = solution.squeeze(-1) if vector else solution
    rank = a.new_empty(0, dtype=torch.int64)
    return torch.return_types.linalg_lstsq((solution, residuals, rank, empty))


def _combinations(
    input: Any,  # noqa: A002 - torch calls the argument so
    r: int = 2,
    with_replacement: bool = False,
) -> Any:
    """``combinations``; torch's own selects them by a mask."""
    combinations_of = (
        itertools.combinations_with_replacement if with_replacement else itertools.combinations
    )
    places = list(combinations_of(range(len(input)), r))
    chosen = torch.tensor(places, dtype=torch.int64).reshape(len(places), r)
    return input[chosen] if r else input[:0]


def _narrow(input: Any, dim: int, start: Any, length: int) -> Any:  # noqa: A002 - torch calls the argument so
    """``narrow``, also from a place that is a tensor."""
    if not isinstance(start, torch.Tensor):
        return input.narrow(dim, start, length)
    start = torch.where(start < 0, start + input.shape[dim], start)
    return input.index_select(dim, start + torch.arange(length))


def _reduced(loss: Any, size_average: Any, reduce: Any, reduction: str) -> Any:
    """A loss after the reduction that its caller names in one of torch's two ways."""
    if size_average is not None or reduce is not None:
        averages = "mean" if size_average in {None, True} else "sum"
        reduction = "none" if reduce is False else averages
    return loss if reduction == "none" else getattr(loss, reduction)()


def _multi_margin_loss(  # noqa: PLR0917 - torch's arguments
    input: Any,  # noqa: A002 - torch calls the argument so
    target: Any,
    p: int = 1,
    margin: float = 1.0,
    weight: Any = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """``multi_margin_loss``, which leaves out NaN, unlike torch's own decomposition."""
    rows, own = torch.atleast_2d(input), torch.atleast_1d(target).unsqueeze(1)
    distance = margin - rows.gather(1, own) + rows
    loss = distance**p if weight is None else distance**p * weight[own]
    counted = (distance > 0) & (torch.arange(rows.shape[1]) != own)
    loss = torch.where(counted, loss, 0.0).sum(1) / rows.shape[1]
    return _reduced(loss.reshape(target.shape), size_average, reduce, reduction)


def _multilabel_margin_loss(
    input: Any,  # noqa: A002 - torch calls the argument so
    target: Any,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Any:
    """``multilabel_margin_loss``, which leaves out NaN, as ``multi_margin_loss`` does."""
    rows, labels = torch.atleast_2d(input), torch.atleast_2d(target)
    classes = torch.arange(rows.shape[1])
    end = torch.where(labels < 0, classes, len(classes)).amin(1, keepdim=True)
    given = classes < end
    is_target = (given.unsqueeze(2) & (labels.unsqueeze(2) == classes)).any(1)
    own = rows.gather(1, torch.where(given, labels, 0))
    distance = 1 - own.unsqueeze(2) + rows.unsqueeze(1)
    counted = given.unsqueeze(2) & ~is_target.unsqueeze(1) & (distance > 0)
    loss = torch.where(counted, distance, 0.0).sum((1, 2)) / len(classes)
    return _reduced(loss.reshape(target.shape[:-1]), size_average, reduce, reduction)


_REPLACEMENTS = {
    **dict.fromkeys((torch.cov, torch.Tensor.cov), _covariance),
    **dict.fromkeys((torch.corrcoef, torch.Tensor.corrcoef), _correlation),
    **dict.fromkeys((torch.narrow, torch.Tensor.narrow), _narrow),
    torch.combinations: _combinations,
    torch.linalg.lstsq: _least_squares,
    functional.multi_margin_loss: _multi_margin_loss,
    functional.multilabel_margin_loss: _multilabel_margin_loss,
}


class FunctionReplacements(TorchFunctionMode):
    """Replaces functions of torch while a network is exported."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Call a function, or the one that replaces it."""
        return _REPLACEMENTS.get(function, function)(*args, **(kwargs or {}))


_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
"""Names of operators of whole recurrent layers."""

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd  # noqa: SLF001 - torch names it so


def _recurrent_shapes(x: Any, first: Any, *options: Any) -> tuple[Any, ...]:
    """Tensors of the shapes of the outputs and the final states of recurrent layers."""
    bidirectional = options[-2]
    states = [first] if isinstance(first, torch.Tensor) else first
    width = states[0].shape[-1] * (2 if bidirectional else 1)
    return x.new_empty((*x.shape[:2], width)), *map(torch.empty_like, states)


@contextlib.contextmanager
def recurrent_shapes() -> Iterator[None]:
    """Let an export find out the shapes of recurrent layers without computing each step.

    Torch would trace all operators of each step, which takes 8 s for 160 steps, and drop them.
    """
    operators = [getattr(torch.ops.aten, name).input for name in _RECURRENT]
    kernels = [operator.py_kernels.get(_COMPOSITE) for operator in operators]
    if None in kernels:  # another version of torch
        yield
        return

    def use(functions: Sequence[Any]) -> None:
        for operator, function in zip(operators, functions, strict=True):
            operator.py_kernels[_COMPOSITE] = function
            operator._dispatch_cache.clear()  # noqa: SLF001 - it keeps the earlier function

    use([_recurrent_shapes] * len(operators))
    try:
        yield
    finally:
        use(kernels)

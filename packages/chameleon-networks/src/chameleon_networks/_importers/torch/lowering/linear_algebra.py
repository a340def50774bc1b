"""Factorizations of small matrices as series of simple operators, about ten for each row or column.

Golub and Van Loan, Matrix Computations: LU (3.4.1), Cholesky (4.2.2), Householder (5.2.1) and one-
sided Jacobi (8.6.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

_ATEN = torch.ops.aten

MAX_ROWS = 32
"""Most rows and columns of a matrix. Each of them takes about ten operators."""


def _only_small(function: Callable[..., Any], most: int = MAX_ROWS) -> Callable[..., Any]:
    """Restrict a function of a matrix to small matrices that are not empty."""

    def checked(matrix: Any, *args: Any, **kwargs: Any) -> Any:
        if matrix.numel() == 0 or max(matrix.shape[-2:]) > most:
            return NotImplemented
        return function(matrix, *args, **kwargs)

    return checked


def _first_failure(failed: Any) -> Any:
    """The number of the first step that failed, counted from 1, or 0; LAPACK's ``info``."""
    count = failed.shape[-1]
    first = torch.where(failed, torch.arange(1, count + 1), count + 1).amin(-1)
    return torch.where(first > count, 0, first).to(torch.int32)


def _cholesky(a: Any, upper: bool = False) -> Any:
    """Cholesky's factor."""
    return _cholesky_ex(a, upper=upper)[0]


def _cholesky_ex(a: Any, *, upper: bool = False, **_: Any) -> Any:
    a = a.mT if upper else a
    rows, columns, failed = torch.arange(a.shape[-1]), [], []
    for step in range(a.shape[-1]):
        failed.append(~(a[..., step, step] > 0))  # also of NaN
        column = a[..., step] / a[..., step, step, None].sqrt()
        column = torch.where(rows >= step, column, 0.0)
        columns.append(column)
        a = a - column.unsqueeze(-1) * column.unsqueeze(-2)
    factor = torch.stack(columns, -1)
    return factor.mT if upper else factor, _first_failure(torch.stack(failed, -1))


def _substitute(a: Any, b: Any, *, upper: bool, unit: bool) -> Any:
    """The solution of ``a @ x = b`` for a triangular matrix."""
    if upper:
        return _substitute(a.flip([-1, -2]), b.flip([-2]), upper=False, unit=unit).flip([-2])
    b = b.expand(*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:])
    if a.shape[-1] > MAX_ROWS:
        return _substitute_by_blocks(a, b, unit=unit)
    rows: list[Any] = []
    for step in range(a.shape[-1]):
        row = b[..., step : step + 1, :]
        if rows:
            row = row - a[..., step : step + 1, :step] @ torch.cat(rows, -2)
        rows.append(row if unit else row / a[..., step : step + 1, step : step + 1])
    return torch.cat(rows, -2)


def _substitute_by_blocks(a: Any, b: Any, *, unit: bool) -> Any:
    """The solution for a lower triangle, whose blocks on the diagonal are inverted at once."""
    count = a.shape[-1]
    size = math.isqrt(count - 1) + 1
    # The last block may overlap the block before it, and solves these rows again.
    parts = [slice(start, start + size) for start in (*range(0, count - size, size), count - size)]
    blocks = torch.stack([a[..., part, part] for part in parts], -3)
    inverses = _substitute(blocks, torch.eye(size, dtype=a.dtype), upper=False, unit=unit)
    solution = inverses[..., 0, :, :] @ b[..., :size, :]
    for block, part in enumerate(parts[1:], 1):
        above = solution[..., : part.start, :]
        rows = b[..., part, :] - a[..., part, : part.start] @ above
        solution = torch.cat([above, inverses[..., block, :, :] @ rows], -2)
    return solution


def _linalg_solve_triangular(
    a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    if not left:
        a, b, upper = a.mT, b.mT, not upper
    solution = _substitute(a, b, upper=upper, unit=unitriangular)
    return solution if left else solution.mT


def _triangular_solve(
    b: Any, a: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    """``triangular_solve``, which also returns its matrix."""
    matrix = a.mT if transpose else a
    solution = _substitute(matrix, b, upper=upper != transpose, unit=unitriangular)
    return solution, a.expand(*solution.shape[:-2], *a.shape[-2:]).clone()


def _cholesky_solve(b: Any, factor: Any, upper: bool = False) -> Any:
    """``cholesky_solve``."""
    lower = factor.mT if upper else factor
    solution = _substitute(lower, b, upper=False, unit=False)
    return _substitute(lower.mT, solution, upper=True, unit=False)


def _cholesky_inverse(factor: Any, upper: bool = False) -> Any:
    """``cholesky_inverse``."""
    unit = torch.eye(factor.shape[-1], dtype=factor.dtype).expand(factor.shape)
    return _cholesky_solve(unit, factor.triu() if upper else factor.tril(), upper)


def _swap_rows(order: Any, row: int, other: Any) -> Any:
    """A row order in which row ``row`` and row ``other``, which is computed, are exchanged."""
    rows = torch.arange(order.shape[-1])
    source = torch.where(rows == row, other, torch.where(rows == other, row, rows))
    return order.gather(-1, source)


def _gather_rows(a: Any, order: Any) -> Any:
    return a.gather(-2, order.unsqueeze(-1).expand(*order.shape, a.shape[-1]))


def _lu(a: Any, pivot: bool = True) -> tuple[Any, Any]:
    """LU factorization: both triangles in one matrix, and the row exchanges, counted from 1."""
    rows, columns = (torch.arange(extent) for extent in a.shape[-2:])
    straight = rows.expand(a.shape[:-1])
    pivots = []
    for step in range(min(a.shape[-2:])):
        largest = torch.where(rows >= step, a[..., step].abs(), -1.0).argmax(-1, keepdim=True)
        largest = largest if pivot else torch.full_like(largest, step)
        pivots.append(largest)
        a = _gather_rows(a, _swap_rows(straight, step, largest))
        divisor = a[..., step, step, None]
        factor = a[..., step] / torch.where(divisor == 0, 1.0, divisor)
        factor = torch.where(rows > step, factor, 0.0).unsqueeze(-1)
        row = torch.where(columns > step, a[..., step, :], 0.0).unsqueeze(-2)
        below = (rows > step)[:, None] & (columns == step)
        a = torch.where(below, factor, a - factor * row)
    return a, (torch.cat(pivots, -1) + 1).to(torch.int32)


def _lu_factor_ex(a: Any, *, pivot: bool = True, **_: Any) -> Any:
    factors, pivots = _lu(a, pivot)
    return factors, pivots, _first_failure(_diagonal(factors) == 0)


def _row_order(pivots: Any, count: int) -> Any:
    """The order of rows after all exchanges."""
    order = torch.arange(count).expand(*pivots.shape[:-1], count)
    for step in range(pivots.shape[-1]):
        order = _swap_rows(order, step, pivots[..., step, None].long() - 1)
    return order


def _lu_solve(
    factors: Any, pivots: Any, b: Any, *, left: bool = True, adjoint: bool = False
) -> Any:
    """``linalg_lu_solve``."""
    if not left:
        return _lu_solve(factors, pivots, b.mT, adjoint=not adjoint).mT
    batch = torch.broadcast_shapes(factors.shape[:-2], b.shape[:-2])
    factors = factors.expand(*batch, *factors.shape[-2:])
    order = _row_order(pivots, factors.shape[-1]).expand(*batch, factors.shape[-1])
    b = b.expand(*batch, *b.shape[-2:])
    if adjoint:
        solution = _substitute(factors.mT, b, upper=False, unit=False)
        solution = _substitute(factors.mT, solution, upper=True, unit=True)
        return _gather_rows(solution, order.argsort(-1))
    solution = _substitute(factors, _gather_rows(b, order), upper=False, unit=True)
    return _substitute(factors, solution, upper=True, unit=False)


def _permutation_sign(pivots: Any) -> Any:
    """The sign of a permutation: -1 for an odd number of row exchanges."""
    straight = torch.arange(1, pivots.shape[-1] + 1)
    return 1.0 - 2.0 * ((pivots != straight).sum(-1) % 2)


def _diagonal(factors: Any) -> Any:
    return factors.diagonal(0, -2, -1)


def _determinant(a: Any) -> Any:
    factors, pivots = _lu(a)
    return _diagonal(factors).prod(-1) * _permutation_sign(pivots), factors, pivots


def _log_determinant(a: Any) -> Any:
    factors, pivots = _lu(a)
    diagonal = _diagonal(factors)
    sign = diagonal.sign().prod(-1) * _permutation_sign(pivots)
    return sign, diagonal.abs().log().sum(-1), factors, pivots


def _inverse(a: Any, **_: Any) -> Any:
    unit = torch.eye(a.shape[-1], dtype=a.dtype).expand(a.shape)
    factors, pivots, info = _lu_factor_ex(a)
    return _lu_solve(factors, pivots, unit), info


def _solve(a: Any, b: Any, *, left: bool = True, **_: Any) -> Any:
    factors, pivots, info = _lu_factor_ex(a)
    vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    right = b.unsqueeze(-1) if vector else b
    solution = _lu_solve(factors, pivots, right, left=left or vector)
    return solution.squeeze(-1) if vector else solution, factors, pivots, info


def _lu_unpack(
    factors: Any, pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    """``lu_unpack``."""
    if not (unpack_data and unpack_pivots):
        return NotImplemented
    count, width = factors.shape[-2:]
    least = min(count, width)
    lower = factors[..., :least].tril(-1) + torch.eye(count, least, dtype=factors.dtype)
    order = _row_order(pivots, count)
    permutation = torch.eye(count, dtype=factors.dtype)[order].mT
    return permutation, lower, factors[..., :least, :].triu()


def _plu(a: Any, *, pivot: bool = True) -> Any:
    return _lu_unpack(*_lu(a, pivot))


def _scale(largest: Any) -> Any:
    """The factor by which numbers are divided so that no square overflows or vanishes."""
    usual = (largest > 2.0**-40) & (largest < 2.0**40)
    return torch.where(usual | (largest == 0) | ~largest.isfinite(), 1.0, largest)


def _geqrf(a: Any) -> Any:
    """``geqrf``: R above the vectors of Householder's reflections, and a factor of each."""
    rows, columns = (torch.arange(extent) for extent in a.shape[-2:])
    factors = []
    for step in range(min(a.shape[-2:])):
        column, head = torch.where(rows >= step, a[..., step], 0.0), a[..., step, step, None]
        is_nonzero = torch.where(rows > step, column, 0.0).abs().amax(-1, keepdim=True) != 0
        scale = _scale(column.abs().amax(-1, keepdim=True))
        norm = scale * ((column / scale) ** 2).sum(-1, keepdim=True).sqrt()
        head_change = head + torch.where(head < 0, -norm, norm)
        factor = torch.where(is_nonzero, head_change / torch.where(head < 0, -norm, norm), 0.0)
        vector = torch.where(rows > step, column / torch.where(is_nonzero, head_change, 1.0), 0.0)
        vector = (vector + (rows == step)).unsqueeze(-1)
        factors.append(torch.where(is_nonzero, factor, 0.0))
        reflected = a - vector * (factors[-1].unsqueeze(-1) * (vector.mT @ a))
        a = torch.where(columns >= step, reflected, a)
        a = torch.where((rows > step)[:, None] & (columns == step), vector, a)
    return a, torch.cat(factors, -1)


def _householder_product(a: Any, factors: Any) -> Any:
    """The orthogonal matrix of reflections."""
    rows = torch.arange(a.shape[-2])
    product = torch.eye(len(rows), dtype=a.dtype).expand(*a.shape[:-1], len(rows))
    # From the last reflection on, as in LAPACK, no reflection changes rows before its own.
    for step in reversed(range(factors.shape[-1])):
        vector = torch.where(rows > step, a[..., step], 0.0) + (rows == step)
        column = factors[..., step, None, None] * vector.unsqueeze(-1)
        product = product - column * (vector.unsqueeze(-2) @ product)
    return product


def _ormqr(a: Any, factors: Any, b: Any, left: bool = True, transpose: bool = False) -> Any:
    """``ormqr``."""
    product = _householder_product(a, factors)
    product = product.mT if transpose else product
    return product @ b if left else b @ product


def _qr(a: Any, mode: str = "reduced") -> Any:
    """``linalg_qr``, with the signs of LAPACK's result."""
    reflections, factors = _geqrf(a)
    columns = a.shape[-2] if mode == "complete" else min(a.shape[-2:])
    q = a.new_empty(0) if mode == "r" else _householder_product(reflections, factors)[..., :columns]
    return q, reflections[..., :columns, :].triu()


MAX_SINGULAR_VALUES = 8
"""Most singular values of a matrix. Their rotations take over a hundred operators for each."""


def _rotate(first_half: Any, second_half: Any, rows: int) -> tuple[Any, Any]:
    """Rotate pairs of columns, so that their first rows are orthogonal."""
    first, second = first_half[..., :rows, :], second_half[..., :rows, :]
    dot_product = (first * second).sum(-2, keepdim=True)
    difference = (
        (second * second).sum(-2, keepdim=True) - (first * first).sum(-2, keepdim=True)
    ) / 2
    size = difference.abs() + (difference * difference + dot_product * dot_product).sqrt()
    tangent = torch.where(difference < 0, -dot_product, dot_product) / torch.where(
        size > 0, size, 1.0
    )
    cosine = torch.rsqrt(1 + tangent * tangent)
    sine = cosine * tangent
    return cosine * first_half - sine * second_half, sine * first_half + cosine * second_half


def _orthogonal_columns(a: Any, rows: int) -> Any:
    """Rotate columns, until the first rows of all pairs of columns are orthogonal."""
    count = a.shape[-1]
    half, odd = count // 2, count % 2
    first_half, second_half, last = a.split([half, half, odd], -1)
    # A sweep pairs each column with each other one; so many sweeps suffice for float32.
    for _ in range((4 if count <= 3 else 6) * (count - 1 + odd)):  # noqa: PLR2004
        first_half, second_half = _rotate(first_half, second_half, rows)
        if count == 2:  # noqa: PLR2004 - two columns are a single pair
            continue
        if odd:
            moved, last = torch.cat([last, first_half[..., :-1]], -1), second_half[..., :1]
        else:
            moved = torch.cat(
                [first_half[..., :1], second_half[..., :1], first_half[..., 1:-1]], -1
            )
        first_half, second_half = moved, torch.cat([second_half[..., 1:], first_half[..., -1:]], -1)
    return torch.cat([first_half, second_half, last], -1)


def _svd(a: Any, full_matrices: bool = False, compute_uv: bool = True, **_: Any) -> Any:
    """``linalg_svd``. The signs of its vectors are not those of LAPACK's result."""
    rows, count = a.shape[-2:]
    if min(rows, count) > MAX_SINGULAR_VALUES:
        return NotImplemented
    if rows < count:
        left, values, right = _svd(a.mT, full_matrices, compute_uv)
        return (right.mT, values, left.mT) if compute_uv else (left, values, right)
    scale = _scale(a.abs().amax((-2, -1), keepdim=True))
    unit = torch.eye(count, dtype=a.dtype).expand(*a.shape[:-2], count, count)
    stacked = torch.cat([a / scale, unit], -2)
    stacked = _orthogonal_columns(stacked, rows) if count > 1 else stacked
    values = (stacked[..., :rows, :] ** 2).sum(-2).sqrt()
    values, order = values.sort(-1, descending=True)
    values = values * scale.squeeze(-1)
    if not compute_uv:
        return a.new_empty(0), values, a.new_empty(0)
    stacked = stacked.gather(-1, order.unsqueeze(-2).expand(stacked.shape))
    q, r = _qr(stacked[..., :rows, :], "complete" if full_matrices else "reduced")
    signs = torch.where(_diagonal(r) < 0, -1.0, 1.0).unsqueeze(-2)
    u = torch.cat([q[..., :count] * signs, q[..., count:]], -1) if full_matrices else q * signs
    return u, values, stacked[..., rows:, :].mT


def _pseudoinverse(a: Any, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
    """``linalg_pinv``, which reads the lower triangle of a Hermitian matrix."""
    a = a.tril() + a.tril(-1).mT if hermitian else a
    if min(a.shape[-2:]) > MAX_SINGULAR_VALUES:
        return NotImplemented
    u, values, v = _svd(a)
    least = torch.zeros_like(values[..., :1]) if atol is None else atol.unsqueeze(-1)
    if rtol is None:
        known = max(a.shape[-2:]) * torch.finfo(a.dtype).eps
        relative = torch.where(least > 0, 0.0, known)
    else:
        relative = rtol.unsqueeze(-1)
    least = torch.maximum(least, relative * values[..., :1])
    nonzero = values > least
    inverse = torch.where(nonzero, 1 / torch.where(nonzero, values, 1.0), 0.0)
    return v.mT * inverse.unsqueeze(-2) @ u.mT


_TRIANGULAR_SYSTEMS: dict[Any, Callable[..., Any]] = {
    _ATEN.linalg_solve_triangular.default: _only_small(_linalg_solve_triangular, MAX_ROWS**2),
    _ATEN.triangular_solve.default: _only_small(_triangular_solve, MAX_ROWS**2),
}

DECOMPOSITIONS = (
    _TRIANGULAR_SYSTEMS
    | {
        operator: _only_small(function)
        for operator, function in (
            (_ATEN.cholesky.default, _cholesky),
            (_ATEN.linalg_cholesky_ex.default, _cholesky_ex),
            (_ATEN.cholesky_solve.default, _cholesky_solve),
            (_ATEN.cholesky_inverse.default, _cholesky_inverse),
            (_ATEN.linalg_lu_factor_ex.default, _lu_factor_ex),
            (_ATEN.linalg_lu_solve.default, _lu_solve),
            (_ATEN.linalg_lu.default, _plu),
            (_ATEN.lu_unpack.default, _lu_unpack),
            (_ATEN._linalg_det.default, _determinant),  # noqa: SLF001 - the operator has this name
            (_ATEN._linalg_slogdet.default, _log_determinant),  # noqa: SLF001
            (_ATEN.linalg_inv_ex.default, _inverse),
            (_ATEN._linalg_solve_ex.default, _solve),  # noqa: SLF001
            (_ATEN.linalg_qr.default, _qr),
            (_ATEN._linalg_svd.default, _svd),  # noqa: SLF001
            (_ATEN.linalg_pinv.atol_rtol_tensor, _pseudoinverse),
            (_ATEN.geqrf.default, _geqrf),
            (_ATEN.ormqr.default, _ormqr),
            (
                _ATEN.linalg_householder_product.default,
                lambda a, x: _householder_product(a, x)[..., : a.shape[-1]],
            ),
        )
    }
)
"""Functions of torch that are traced instead of an operator, by operator."""

"""Discrete Fourier transforms by their definition, as products with matrices of cosines and sines.

A transform of n numbers takes n^2 multiplications instead of some n log n, but in one tuned kernel
that reaches most of a core's peak. Lengths of windows and of sequences are short enough for that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from chameleon_core.errors import ConfigError

from chameleon_networks.importers.torch.lowering.pairs import Pair, times

_ATEN = torch.ops.aten

LONGEST = 2048
"""Numbers of a transform: its two matrices take 32 MiB then."""


def complex_to_complex(
    given: Pair, shape: Sequence[int], axes: Sequence[int], mode: int, *, forward: bool
) -> Pair:
    """``torch.fft.fftn``, or ``ifftn``.

    Args:
        given: of the shape.
        shape: its extents.
        axes: to transform along.
        mode: how it is normalised; see ``_scaled``.
        forward: whether angles are negative.
    """
    for axis in axes:
        given = _along(given, len(shape), axis, _matrix(given, shape[axis], forward=forward))
    return _scaled(given, [shape[axis] for axis in axes], mode)


def real_to_complex(
    given: Any, shape: Sequence[int], axes: Sequence[int], mode: int, *, onesided: bool
) -> Pair:
    """``torch.fft.rfftn``: the last of the axes first, of which half is kept if ``onesided``."""
    *others, last = axes
    extent = shape[last]
    kept = extent // 2 + 1 if onesided else extent
    pair = Pair(given)
    made = _along(pair, len(shape), last, _matrix(pair, extent, columns=kept, forward=True))
    found = complex_to_complex(made, shape, others, 0, forward=True)
    return _scaled(found, [shape[axis] for axis in axes], mode)


def complex_to_real(
    given: Pair, shape: Sequence[int], axes: Sequence[int], mode: int, extent: int
) -> Any:
    """``torch.fft.irfftn``.

    Args:
        given: half of what is symmetric along the last one of the axes.
        shape: its extents.
        axes: to transform along.
        mode: how it is normalised; see ``_scaled``.
        extent: of the result along the last one of the axes.
    """
    *others, last = axes
    given = complex_to_complex(given, shape, others, 0, forward=False)
    # What is left out is the mirror image of what is there, but for both ends.
    rows = shape[last]
    count = Pair.of(_indices(given, rows)).real
    ends = [_ATEN.eq.Scalar(count, 0)]
    if extent % 2 == 0:
        ends.append(_ATEN.eq.Scalar(count, extent // 2))
    twice: Any = _ATEN.full_like.default(_float(count), 2.0)
    for end in ends:
        twice = _ATEN.sub.Tensor(twice, _float(end))
    weight = _ATEN.unsqueeze.default(twice, 1)
    matrix = _matrix(given, extent, rows=rows, forward=False)
    weighted = Pair(times(matrix.real, weight), times(matrix.imaginary, weight))
    made = _along(given, len(shape), last, weighted)
    sizes = [extent if axis == last else shape[axis] for axis in axes]
    return _scaled(Pair(made.real), sizes, mode).real


def _scaled(given: Pair, extents: Sequence[int], mode: int) -> Pair:
    """Normalised as torch numbers the ways to: not, by the root of all extents, or by them."""
    count = math.prod(extents)
    factor = (1.0, 1.0 / math.sqrt(count), 1.0 / count)[mode]
    return given * Pair(factor)


def _along(given: Pair, rank: int, axis: int, matrix: Pair) -> Pair:
    """The product of an axis with a matrix."""
    axis %= rank
    there = [*(one for one in range(rank) if one != axis), axis]
    back = [there.index(one) for one in range(rank)]
    moved = given.each(lambda part: _ATEN.permute.default(part, there))
    made = moved.product(matrix, _ATEN.matmul.default)
    return made.each(lambda part: _ATEN.permute.default(part, back))


def _matrix(
    beside: Pair,
    extent: int,
    *,
    forward: bool,
    rows: int | None = None,
    columns: int | None = None,
) -> Pair:
    """``exp(-2 pi i r c / extent)`` for rows r and columns c, or its conjugate.

    Raises:
        ConfigError: it would be very large.
    """
    if extent > LONGEST:
        raise ConfigError(
            f"a Fourier transform of {extent} numbers is too long",
            hint=f"Up to {LONGEST} are computed, as a matrix product; compute it outside.",
        )
    left = _ATEN.unsqueeze.default(_indices(beside, rows or extent), 1)
    right = _ATEN.unsqueeze.default(_indices(beside, columns or extent), 0)
    # The remainder first: a large angle has lost its last digits.
    turns = _ATEN.remainder.Scalar(_ATEN.mul.Tensor(left, right), extent)
    angle = _ATEN.mul.Tensor(_float(turns), 2.0 * math.pi / extent)
    # Half a turn is no exact float32; its sine is zero, and so is a real signal's imaginary part.
    apart = _ATEN.ne.Scalar(_ATEN.remainder.Scalar(_ATEN.mul.Tensor(turns, 2), extent), 0)
    sine = _ATEN.mul.Tensor(_ATEN.sin.default(angle), _float(apart))
    return Pair(_ATEN.cos.default(angle), times(sine, -1) if forward else sine)


def _indices(beside: Pair, count: int) -> Any:
    """0, 1, ... as a tensor, in the graph that something is in."""
    some = next(one for one in (beside.real, beside.imaginary) if not isinstance(one, int | float))
    node = some.tracer.create_node("call_function", _ATEN.arange.start_step, (0, count, 1), {})
    return type(some)(node, some.tracer)


def _float(values: Any) -> Any:
    return _ATEN._to_copy.default(values, dtype=torch.float32)  # noqa: SLF001 - it is called so

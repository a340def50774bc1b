"""Parts of attention's loops: tiles, the arrays of queries, keys and values, exponentials."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Buffer, Expr, integer, number, typed
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._operators.attention_specs import AttentionSpec, ordered
from chameleon_tvm._operators.elementary import polynomial
from chameleon_tvm._types import FLOAT32, STORAGE, StorageType

_LOG2_E = 1.4426950408889634
_LEAST_POWER = -88.03
"""A number just above -127 ln 2. For smaller x, e^x is 0 in float32 without subnormal numbers."""
_EXPONENT_BIAS = 127
_MANTISSA_BITS = 23
_POWER_OF_TWO = (
    1.326472731307149e-03,
    9.671512991189957e-03,
    5.550733581185341e-02,
    2.402224242687225e-01,
    6.931470036506653e-01,
    1.0,
)
"""Coefficients, highest first, of 2^x on [-1/2, 1/2] to 1e-7, fitted by Lawson's iteration for the
largest relative error, with 2^0 = 1 exactly."""


@attrs.frozen(kw_only=True)
class AttentionTile:
    """A decoded configuration of attention.

    Attributes:
        query_vectors: Number of vectors of queries in an iteration of the parallel loop.
        key_rows: Number of keys whose scores are in registers at a time.
        query_rows: Number of queries whose outputs are in registers at a time.
        value_vectors: Number of vectors of an output that are in registers at a time.
        key_block: Number of keys of a block.
        copy: Whether keys and values are copied first, so that the tokens of a head are contiguous.
        unroll: Number of features per iteration of the innermost loop of the scores.
    """

    query_vectors: int
    key_rows: int
    query_rows: int
    value_vectors: int
    key_block: int
    copy: bool
    unroll: int


@attrs.frozen(kw_only=True, eq=False)
class Part:
    """An array that holds queries, keys or values.

    Attributes:
        data: The array, with its axes in the order of ``layout``.
        layout: Order of the array's axes.
        first: Index of the part's first head, if several parts share the array.
        kind: Storage type of the array's numbers.
    """

    data: Buffer
    layout: str
    first: int = 0
    kind: StorageType = STORAGE[FLOAT32]

    def load(self, b: Expr, h: Expr, s: Expr, d: Expr, lanes: int = 1) -> Expr:
        """Read features of a token in float32, as a TensorIR expression.

        Args:
            lanes: Number of features, which must be along the last axis if there are several.
        """
        return emit.widening(self.kind, self.as_held(b, h, s, d, lanes))

    def as_held(self, b: Expr, h: Expr, s: Expr, d: Expr, lanes: int = 1) -> Expr:
        """Read features of a token in the array's own dtype.

        The arguments are those of ``load``.
        """
        indices = dict(zip("BHSD", (b, h + self.first, s, d), strict=True))
        return emit.load(self.data, [indices[axis] for axis in self.layout], lanes)


@attrs.frozen(kw_only=True, eq=False)
class Row:
    """The registers and scratch arrays with which a kernel computes a tile of queries of one head.

    Attributes:
        b: Index of the sample in the batch.
        h: Index of the head.
        shared: Index of the head of keys and values that this head reads.
        first: Index of the first query.
        valid: Number of queries. Lanes beyond them compute numbers that are not stored.
        vectors: Number of vectors that hold the queries.
        queries: Scratch array of scaled queries, shape (features, lanes). An instruction may
            multiply groups of several features at once. The array then has unscaled queries, and
            the shape (groups, lanes x features of a group).
        mask: Scratch array of the mask, shape (keys of a tile, lanes).
        scores: Scratch array of scores, later of their exponentials, shape (keys of a block,
            lanes).
        sums: Scratch array of outputs that are not complete, shape (queries, value features).
        scales: Scratch array of each query's factor for earlier sums, shape (lanes,).
        most: Each lane's largest score so far, one register per vector.
        totals: Each lane's sum of exponentials so far, one register per vector.
    """

    b: Expr
    h: Expr
    shared: Expr
    first: Expr
    valid: int
    vectors: int
    queries: Buffer
    mask: Buffer
    scores: Buffer
    sums: Buffer
    scales: Buffer
    most: tuple[Buffer, ...]
    totals: tuple[Buffer, ...]


def parts_of(spec: AttentionSpec) -> tuple[Part, Part, Part]:
    """Queries, keys and values, as parts of the function's parameters."""
    kind = STORAGE[spec.dtype]
    arrays = {
        name: emit.buffer(name, ordered(shape, layout), dtype=kind.storage_dtype)
        for name, shape, layout in spec.parts
    }
    query, key, value = (
        Part(data=arrays[name], layout=layout, first=first, kind=kind)
        for (name, _, layout), first in zip(spec.parts, spec.first_heads, strict=True)
    )
    return query, key, value


def pieces_of(extent: int, lanes: int) -> list[int]:
    """The lengths of the vectors that cover an axis without overlap: whole vectors come first."""
    pieces = []
    while extent:
        while lanes > extent:
            lanes //= 2
        pieces.append(lanes)
        extent -= lanes
    return pieces


def grouped(pieces: Sequence[int], count: int) -> list[tuple[int, tuple[int, ...], int]]:
    """Group the vectors along an axis, so that equal groups can share one loop.

    Args:
        pieces: Number of lanes of each vector, as ``pieces_of`` returns them.

    Returns:
        For each run of equal groups: its start, the lanes of a group's pieces, and the number of
        groups.
    """
    groups = [tuple(pieces[at : at + count]) for at in range(0, len(pieces), count)]
    runs: list[tuple[int, tuple[int, ...], int]] = []
    begin = 0
    for group in groups:
        if runs and runs[-1][1] == group:
            first, _, times = runs[-1]
            runs[-1] = (first, group, times + 1)
        else:
            runs.append((begin, group, 1))
        begin += sum(group)
    return runs


def runs_of(extent: int, size: int) -> list[tuple[int, int, int]]:
    """Divide an axis into parts of equal size, and a shorter last part if needed.

    Returns:
        One tuple for the whole parts, and one for the shorter last part; either is left out if
        there is no such part. A tuple has the start, the size and the number of parts.
    """
    whole, rest = divmod(extent, size)
    runs = [(0, size, whole)] if whole else []
    return [*runs, (whole * size, rest, 1)] if rest else runs


def exponential(value: Expr) -> Expr:
    """e^x for float32 x <= 0 to about 1e-6 of the result; 0 for minus infinity, exactly 1 for 0.

    The result for NaN is NaN.
    """
    least = number(_LEAST_POWER, value)
    # The instruction of a maximum would take the other operand instead of NaN.
    exponent = tirx.Select(value < least, least, value) * number(_LOG2_E, value)
    # Truncation rounds numbers below zero up.
    whole = tirx.Cast(typed("int32", value), exponent - number(0.5, value))
    fraction = exponent - tirx.Cast(typed("float32", value), whole)
    power = polynomial(_POWER_OF_TWO, fraction)
    bits = tirx.shift_left(whole + integer(_EXPONENT_BIAS, value), integer(_MANTISSA_BITS, value))
    return power * tirx.reinterpret(typed("float32", value), bits)

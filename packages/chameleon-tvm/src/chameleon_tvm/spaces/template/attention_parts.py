"""The parts of attention's loops: the tile, arrays, scratch, axes cut into pieces; powers of e."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from chameleon_tvm.instructions.conversions import widening
from chameleon_tvm.operators.attention_specs import AttentionSpec, ordered
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.spaces.template import emit
from chameleon_tvm.spaces.template.emit import Buffer, Expr
from chameleon_tvm.types import FLOAT32, STORAGE, StorageType

_LOG2_E = 1.4426950408889634
_LEAST_POWER = -88.03
"""Just over -127 ln 2: from there on, e^x is 0 in float32 without subnormal numbers."""
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
    """A point of the design space, decoded.

    Attributes:
        query_vectors: vectors of queries that a task of a thread computes.
        key_rows: keys whose scores are in registers at a time.
        query_rows: queries whose outputs are in registers at a time.
        value_vectors: vectors of an output that are in registers at a time.
        block: keys of a block.
        copy: whether keys and values are first copied, each head's tokens side by side.
        unroll: features per iteration of the scores' innermost loop.
    """

    query_vectors: int
    key_rows: int
    query_rows: int
    value_vectors: int
    block: int
    copy: bool
    unroll: int


@attrs.frozen(kw_only=True, eq=False)
class Part:
    """Queries, keys or values in memory.

    Attributes:
        data: the array, of the rank and order of the layout.
        layout: the order of its axes.
        first: the first of its heads there, if several parts share the array.
        kind: the type of its numbers.
    """

    data: Buffer
    layout: str
    first: int = 0
    kind: StorageType = STORAGE[FLOAT32]

    def load(self, b: Expr, h: Expr, s: Expr, d: Expr, lanes: int = 1) -> Expr:
        """A feature of a token, or ``lanes`` of them if features are the last axis: float32."""
        return widening(self.kind, self.as_held(b, h, s, d, lanes), lanes)

    def as_held(self, b: Expr, h: Expr, s: Expr, d: Expr, lanes: int = 1) -> Expr:
        """The same in the type of the array."""
        indices = dict(zip("BHSD", (b, h + self.first, s, d), strict=True))
        return emit.load(self.data, [indices[axis] for axis in self.layout], lanes)


@attrs.frozen(kw_only=True, eq=False)
class Row:
    """The registers and scratch of a tile of queries of one head.

    Attributes:
        b: which sample it is.
        h: which head.
        shared: the head of keys and values that it reads.
        first: the first query.
        valid: how many queries; lanes past them compute numbers that are not stored.
        vectors: vectors that hold them.
        queries: scratch (features, lanes) of scaled queries; if groups of features are
            multiplied together, (groups, lanes x features of a group) of queries as they are.
        mask: scratch (keys of a tile, lanes) of the mask.
        scores: scratch (block, lanes) of scores, then of their powers.
        sums: scratch (queries, value features) of outputs that are not complete.
        scales: scratch (lanes,) of each query's factor of what was summed before.
        most: each lane's largest score so far, a register for every vector.
        totals: each lane's sum of powers so far.
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
    """Queries, keys and values as the function's parameters hold them."""
    kind = STORAGE[spec.dtype]
    dtype = kind.storage_dtype
    if spec.packed:
        data = emit.buffer("packed", ordered(spec.packed_shape, "BSHD"), dtype=dtype)
        heads, shared = spec.query[1], spec.key[1]
        firsts = (0, heads, heads + shared)
        query, key, value = (
            Part(data=data, layout="BSHD", first=first, kind=kind) for first in firsts
        )
        return query, key, value
    query, key, value = (
        Part(data=emit.buffer(name, ordered(shape, layout), dtype=dtype), layout=layout, kind=kind)
        for name, shape, layout in (
            ("query", spec.query, spec.query_layout),
            ("key", spec.key, spec.key_layout),
            ("value", spec.value, spec.value_layout),
        )
    )
    return query, key, value


def pieces_of(extent: int, lanes: int) -> list[int]:
    """An axis in vectors: whole ones, then ever shorter ones, since sums must not overlap."""
    pieces = []
    while extent:
        while lanes > extent:
            lanes //= 2
        pieces.append(lanes)
        extent -= lanes
    return pieces


def grouped(pieces: Sequence[int], count: int) -> list[tuple[int, tuple[int, ...], int]]:
    """Start, lanes and number of repetitions of equal groups of up to ``count`` pieces."""
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
    """Start, size and number of the whole parts of an axis, and of the rest."""
    whole, rest = divmod(extent, size)
    runs = [(0, size, whole)] if whole else []
    return [*runs, (whole * size, rest, 1)] if rest else runs


def exponential(value: Expr, lanes: int = 1) -> Expr:
    """e^x of float32 x <= 0, to about 1e-6 of the result; 0 of minus infinity, and 1 of 0 exactly.

    Args:
        value: x, a scalar or a vector.
        lanes: how many elements the vector has.
    """

    def every(scalar: Expr) -> Expr:
        return scalar if lanes == 1 else tirx.Broadcast(scalar, lanes)

    def number(constant: float) -> Expr:
        return every(tirx.FloatImm("float32", constant))

    def integer(constant: int) -> Expr:
        return every(tirx.IntImm("int32", constant))

    def typed(name: str) -> str:
        return name if lanes == 1 else f"{name}x{lanes}"

    exponent = tirx.max(value, number(_LEAST_POWER)) * number(_LOG2_E)
    # Truncation rounds numbers below zero up.
    whole = tirx.Cast(typed("int32"), exponent - number(0.5))
    fraction = exponent - tirx.Cast(typed("float32"), whole)
    power = number(_POWER_OF_TWO[0])
    for coefficient in _POWER_OF_TWO[1:]:
        power = power * fraction + number(coefficient)
    bits = tirx.shift_left(whole + integer(_EXPONENT_BIAS), integer(_MANTISSA_BITS))
    return power * tirx.reinterpret(typed("float32"), bits)

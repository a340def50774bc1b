"""Parts of attention's loops: tiles, the arrays of queries, keys and values, exponentials."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Buffer, Expr, constant_like, integer_like, vector_dtype
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._operators.attention_specs import AttentionSpec, ordered
from chameleon_tvm._operators.elementary import let, polynomial
from chameleon_tvm._types import FLOAT32, STORAGE, StorageType

LOG2_E = 1.4426950408889634
_LEAST_EXPONENT = -127.0
"""For smaller x, 2^x is 0 in float32 without subnormal numbers."""
_EXPONENT_BIAS = 127
_MANTISSA_BITS = 23
_EXP2_COEFFICIENTS = (
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
        overlap: Whether the last tile of queries begins early enough to be a full one, so that the
            kernel has no code for shorter tiles.
    """

    query_vectors: int
    key_rows: int
    query_rows: int
    value_vectors: int
    key_block: int
    copy: bool
    unroll: int
    overlap: bool = False


@attrs.frozen(kw_only=True, eq=False)
class AttentionInput:
    """An array that holds queries, keys or values.

    Attributes:
        layout: Order of the array's axes.
        first: Index of the first head, if several inputs share the array.
        kind: Storage type of the array's numbers.
    """

    data: Buffer
    layout: str
    first: int = 0
    kind: StorageType = STORAGE[FLOAT32]

    def load(self, b: Expr, h: Expr, s: Expr, d: Expr, lanes: int = 1) -> Expr:
        """Read ``lanes`` features of a token in float32; several must be along the last axis."""
        return emit.widening(self.kind, self.load_stored(b, h, s, d, lanes))

    def load_stored(self, b: Expr, h: Expr, s: Expr, d: Expr, lanes: int = 1) -> Expr:
        """Read ``lanes`` features of a token in the array's storage dtype."""
        indices = dict(zip("BHSD", (b, h + self.first, s, d), strict=True))
        return emit.load(self.data, [indices[axis] for axis in self.layout], lanes)


@attrs.frozen(kw_only=True, eq=False)
class QueryPlace:
    """The place of a tile of queries of one head.

    Attributes:
        b: Index of the sample in the batch.
        h: Index of the head.
        key_head: Index of the head of keys and values that this head reads.
        first: Index of the first query.
    """

    b: Expr
    h: Expr
    key_head: Expr
    first: Expr


@attrs.frozen(kw_only=True, eq=False)
class QueryTile(QueryPlace):
    """The registers and scratch arrays with which a kernel computes a tile of queries of one head.

    Attributes:
        valid: Number of queries. Lanes beyond them compute numbers that are not stored.
        vectors: Number of vectors that hold the queries.
        queries: Scaled queries, shape (features, lanes). If an instruction multiplies groups of
            features: unscaled queries, shape (groups, lanes x features of a group).
        mask: Shape (keys of a tile, lanes).
        scores: Scores, later their exponentials, shape (keys of a block, lanes).
        partial_outputs: Shape (queries, value features).
        scales: Factor of each query's earlier sums, shape (lanes,).
        maxima: Each lane's largest score so far, one register per vector.
        exponential_sums: Each lane's sum of exponentials so far, one register per vector.
    """

    valid: int
    vectors: int
    queries: Buffer
    mask: Buffer
    scores: Buffer
    partial_outputs: Buffer
    scales: Buffer
    maxima: tuple[Buffer, ...]
    exponential_sums: tuple[Buffer, ...]


def attention_inputs(spec: AttentionSpec) -> tuple[AttentionInput, AttentionInput, AttentionInput]:
    """Queries, keys and values, as parameters of the function or parts of one."""
    kind = STORAGE[spec.dtype]
    arrays = {
        name: emit.buffer(name, ordered(shape, layout), dtype=kind.storage_dtype)
        for name, shape, layout in spec.parts
    }
    query, key, value = (
        AttentionInput(data=arrays[name], layout=layout, first=first, kind=kind)
        for (name, _, layout), first in zip(spec.parts, spec.first_heads, strict=True)
    )
    return query, key, value


def vector_lengths(extent: int, lanes: int) -> list[int]:
    """The lengths of the vectors that cover an axis without overlap, longest first."""
    lengths = []
    while extent:
        while lanes > extent:
            lanes //= 2
        lengths.append(lanes)
        extent -= lanes
    return lengths


def group_vectors(lengths: Sequence[int], count: int) -> list[tuple[int, tuple[int, ...], int]]:
    """Group the vectors along an axis: (start, lengths in a group, number of equal groups)."""
    groups = [tuple(lengths[at : at + count]) for at in range(0, len(lengths), count)]
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


def split_axis(extent: int, size: int) -> list[tuple[int, int, int]]:
    """Divide an axis into parts of a size and a shorter rest: (start, size, number of parts)."""
    whole, rest = divmod(extent, size)
    runs = [(0, size, whole)] if whole else []
    return [*runs, (whole * size, rest, 1)] if rest else runs


def exponential(value: Expr) -> Expr:
    """e^x for float32 x <= 0 to about 1e-6 of the result; exact for 0, minus infinity and NaN."""
    return power_of_two(value * constant_like(LOG2_E, value))


def power_of_two(value: Expr) -> Expr:
    """2^x for float32 x <= 0 to about 1e-7 of the result; exact for 0, minus infinity and NaN."""
    minimum = constant_like(_LEAST_EXPONENT, value)

    def of_value(value: Expr) -> Expr:
        # The instruction for a maximum would return the other operand instead of NaN.
        return let(tirx.Select(value < minimum, minimum, value), of_exponent)

    def of_exponent(exponent: Expr) -> Expr:
        # Truncation rounds numbers below zero up.
        whole = tirx.Cast(vector_dtype("int32", value), exponent - constant_like(0.5, value))
        fraction = exponent - tirx.Cast(vector_dtype("float32", value), whole)
        power = let(fraction, lambda fraction: polynomial(_EXP2_COEFFICIENTS, fraction))
        bits = tirx.shift_left(
            whole + integer_like(_EXPONENT_BIAS, value), integer_like(_MANTISSA_BITS, value)
        )
        return power * tirx.reinterpret(vector_dtype("float32", value), bits)

    return let(value, of_value)

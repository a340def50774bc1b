"""What attention's loops work on: the tile, the arrays, scratch, and axes cut into pieces."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from chameleon_tvm.instructions.conversions import widening
from chameleon_tvm.operators.attention_specs import AttentionSpec, ordered
from chameleon_tvm.spaces.template import emit
from chameleon_tvm.spaces.template.emit import Buffer, Expr
from chameleon_tvm.types import FLOAT32, STORAGE, StorageType


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
        first: the first of its heads there, where several parts share the array.
        kind: the type of its numbers.
    """

    data: Buffer
    layout: str
    first: int = 0
    kind: StorageType = STORAGE[FLOAT32]

    def load(self, b: Expr, h: Expr, s: Expr, d: Expr, lanes: int = 1) -> Expr:
        """A feature of a token, or ``lanes`` of them where features are the last axis: float32."""
        return widening(self.kind, self.as_held(b, h, s, d, lanes), lanes)

    def as_held(self, b: Expr, h: Expr, s: Expr, d: Expr, lanes: int = 1) -> Expr:
        """The same in the type of the array."""
        place = dict(zip("BHSD", (b, h + self.first, s, d), strict=True))
        return emit.load(self.data, [place[axis] for axis in self.layout], lanes)


@attrs.frozen(kw_only=True, eq=False)
class Row:
    """What a tile of queries of one head computes with.

    Attributes:
        b: which sample it is.
        h: which head.
        shared: the head of keys and values that it reads.
        first: the first query.
        valid: how many queries; lanes past them compute numbers that are not stored.
        vectors: vectors that hold them.
        queries: scratch (features, lanes) of scaled queries; where groups of features are
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
    held = kind.storage_dtype
    if spec.packed:
        data = emit.buffer("packed", ordered(spec.packed_shape, "BSHD"), dtype=held)
        heads, shared = spec.query[1], spec.key[1]
        firsts = (0, heads, heads + shared)
        query, key, value = (
            Part(data=data, layout="BSHD", first=first, kind=kind) for first in firsts
        )
        return query, key, value
    query, key, value = (
        Part(data=emit.buffer(name, ordered(shape, layout), dtype=held), layout=layout, kind=kind)
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
    found = [(0, size, whole)] if whole else []
    return [*found, (whole * size, rest, 1)] if rest else found

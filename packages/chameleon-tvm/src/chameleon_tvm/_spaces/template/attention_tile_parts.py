"""Parts of attention by tiles: sizes, arrays, items of work, and vectors of a row."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Buffer, Expr, Stmt, assign, read
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._spaces.template.tile_packing import LANES

_MINUS_INFINITY = -(1 << 23)
"""Bits of minus infinity in float32, as an int32 number."""


@attrs.frozen(kw_only=True)
class AttentionBlock:
    """A decoded configuration of attention by tiles.

    Attributes:
        query_tiles: Number of tiles of queries in an iteration of the parallel loop.
        columns: Number of tiles of keys, or of features of values, whose sums are in registers.
        steps: Number of steps of 32 keys in a block of keys.
    """

    query_tiles: int
    columns: int
    steps: int

    @property
    def rows(self) -> int:
        """Number of tiles of queries whose sums are in registers."""
        return min(2, self.query_tiles)

    @property
    def groups(self) -> int:
        """Number of groups of ``rows`` tiles of queries."""
        return self.query_tiles // self.rows

    @property
    def group_queries(self) -> int:
        """Number of queries of a group."""
        return self.rows * LANES

    @property
    def queries(self) -> int:
        """Number of queries in an iteration of the parallel loop."""
        return self.query_tiles * LANES


@attrs.frozen(kw_only=True, eq=False)
class Scratch:
    """The arrays of an iteration of the parallel loop.

    Attributes:
        queries: Packed queries, shape (feature steps, parts, tiles of queries) of tiles.
        scores: Scores of one or two items, shape (items, queries of a group, pitch).
        powers: Packed exponentials of one or two items, shape (items, steps, parts, tiles of a
            group) of tiles.
        outputs: Sums of values, shape (queries, padded features).
        maxima: The largest score so far, in all lanes, shape (queries, lanes).
        totals: Sums of exponentials in each lane, shape (queries, lanes).
    """

    queries: Buffer
    scores: Buffer
    powers: Buffer
    outputs: Buffer
    maxima: Buffer
    totals: Buffer


@attrs.frozen(kw_only=True, eq=False)
class Item:
    """The work on a block of keys for a group of queries.

    Attributes:
        key_block: Number of the block of keys.
        begin: Its first step of keys.
        steps: Number of its steps.
        packed: Number of the first step among those of all heads.
        query_tile: The first tile of queries of the group.
        slot: Number of the arrays of scores and exponentials that the item uses, 0 or 1.
    """

    key_block: Expr
    begin: Expr
    steps: Expr
    packed: Expr
    query_tile: Expr
    slot: Expr


@attrs.frozen(kw_only=True, eq=False)
class Between:
    """Rows of exponentials that come between tile products.

    Attributes:
        first: The first row.
        rows: Number of rows.
        row: Writes the statement of a row.
        guard: Whether there are tile products.
    """

    first: int
    rows: int
    row: Callable[[Expr], Stmt]
    guard: Expr


def guarded(between: Between | None, statement: Stmt) -> Stmt:
    return statement if between is None else emit.when(between.guard, statement)


def with_rows(between: Between | None, products: Stmt, number: Expr, count: Expr) -> Stmt:
    """Tile products, and their share of the rows between ``count`` such products."""
    if between is None:
        return products
    first = tirx.floordiv(number * between.rows, count)
    end = tirx.floordiv((number + 1) * between.rows, count)
    start = between.first + first
    rows = emit.loop("row", end - first, lambda at: between.row(start + at))
    return emit.sequence([guarded(between, products), rows])


def in_all_lanes(register: Buffer, combine: Callable[[Expr, Expr], Expr]) -> list[Stmt]:
    """Statements that put the combination of all lanes of a register into each lane."""
    statements, distance = [], LANES // 2
    while distance:
        order = [lane ^ distance for lane in range(LANES)]
        other = tirx.Shuffle([read(register)], order)
        statements.append(assign(register, combine(read(register), other)))
        distance //= 2
    return statements


def hidden(scores: Expr, valid: Expr) -> Expr:
    """The first ``valid`` lanes of a vector of scores, and minus infinity in the others.

    These are integers, because TVM lets LLVM assume that no float constant is infinite.
    """
    dtype = emit.vector_dtype("int32", scores)
    lanes = tirx.Ramp(tirx.IntImm("int32", 0), tirx.IntImm("int32", 1), LANES)
    inside = lanes < emit.broadcast_like(tirx.convert(valid), scores)
    bits = tirx.Select(
        inside, tirx.reinterpret(dtype, scores), emit.integer_like(_MINUS_INFINITY, scores)
    )
    return tirx.reinterpret(emit.vector_dtype("float32", scores), bits)

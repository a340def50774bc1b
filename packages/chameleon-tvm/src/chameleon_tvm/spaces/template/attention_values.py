"""Sums of values, weighted with powers of scores: a tile of outputs in registers at a time."""

from __future__ import annotations

from collections.abc import Callable

from chameleon_tvm.instructions.halves import half_of
from chameleon_tvm.spaces.template import emit
from chameleon_tvm.spaces.template.attention_parts import (
    Operands,
    Row,
    grouped,
    pieces_of,
    runs_of,
)
from chameleon_tvm.spaces.template.emit import Buffer, Expr, Stmt


class WeightedSumLoops:
    """Writes what becomes of powers and values.

    Args:
        operands: of the function.
    """

    def __init__(self, operands: Operands) -> None:
        self.operands = operands

    def cleared(self, row: Row) -> Stmt:
        """Begin with sums of 0."""

        def query(q: Expr) -> Stmt:
            columns = self.operands.spec.value[3]
            return emit.loop("z", columns, lambda z: emit.store(row.sums, [q, z], emit.zero()))

        return emit.loop("r", row.valid, query)

    def added(self, row: Row, start: Expr, count: Expr) -> Stmt:
        """Add the values of a block, weighted with their powers."""
        columns = grouped(
            pieces_of(self.operands.spec.value[3], self.operands.lanes),
            self.operands.tile.value_vectors,
        )
        statements = []
        for first, rows, times in runs_of(row.valid, self.operands.tile.query_rows):
            for begin, pieces, repeats in columns:
                step = sum(pieces)

                def tile(
                    q: Expr,
                    c: Expr,
                    *,
                    first: int = first,
                    rows: int = rows,
                    begin: int = begin,
                    pieces: tuple[int, ...] = pieces,
                    step: int = step,
                ) -> Stmt:
                    return self._mix(
                        row, (start, count), (first + q * rows, rows), (begin + c * step, pieces)
                    )

                statements.append(emit.loop("c", repeats, _nested("q", times, tile)))
        return emit.sequence(statements)

    def _mix(
        self,
        row: Row,
        keys: tuple[Expr, Expr],
        queries: tuple[Expr, int],
        columns: tuple[Expr, tuple[int, ...]],
    ) -> Stmt:
        """A tile of outputs: some queries, and some vectors of features of the lanes given."""
        (start, count), (q, rows), (begin, pieces) = keys, queries, columns
        places = [begin + sum(pieces[:at]) for at in range(len(pieces))]
        tile = [
            (r, place, lanes, emit.buffer(f"mixed{r}_{at}", (lanes,)))
            for r in range(rows)
            for at, (place, lanes) in enumerate(zip(places, pieces, strict=True))
        ]
        shared = self.operands.head_of_keys(row)

        def scale(r: int, lanes: int) -> Expr:
            return emit.splat(emit.load(row.scales, [q + r]), lanes)

        def first(r: int, place: Expr, lanes: int) -> Expr:
            if self.operands.blocks == 1:
                return emit.zero(lanes)
            return emit.load(row.sums, [q + r, place], lanes) * scale(r, lanes)

        def key(k: Expr) -> Stmt:
            values = [
                self.operands.value.load(row.b, shared, start + k, place, lanes)
                for place, lanes in zip(places, pieces, strict=True)
            ]
            statements = []
            for at, (r, _, lanes, into) in enumerate(tile):
                power = emit.splat(emit.load(row.scores, [k, q + r]), lanes)
                total = emit.load(into, [0], lanes) + power * values[at % len(pieces)]
                statements.append(emit.store(into, [0], total, lanes))
            return emit.sequence(statements)

        def last(r: int, place: Expr, lanes: int, total: Buffer) -> Stmt:
            value = emit.load(total, [0], lanes)
            if self.operands.blocks == 1:
                return self._write(row, q + r, place, value * scale(r, lanes), lanes)
            return emit.store(row.sums, [q + r, place], value, lanes)

        statements = [
            *(emit.store(one, [0], first(r, at, lanes), lanes) for r, at, lanes, one in tile),
            emit.loop("k", count, key),
            *(last(*one) for one in tile),
        ]
        return emit.local([one for *_, one in tile], emit.sequence(statements))

    def written(self, row: Row) -> Stmt:
        """Write what the blocks have summed, divided by their powers' sums."""

        def query(q: Expr) -> Stmt:
            scale = emit.load(row.scales, [q])

            def column(d: Expr) -> Stmt:
                return self._write(row, q, d, emit.load(row.sums, [q, d]) * scale, 1)

            return emit.loop("d", self.operands.spec.value[3], column)

        return emit.loop("q", row.valid, query)

    def _write(self, row: Row, q: Expr, d: Expr, value: Expr, lanes: int) -> Stmt:
        place = dict(zip("BHSD", (row.b, row.h, row.first + q, d), strict=True))
        written = half_of(self.operands.spec.output_dtype)
        value = value if written is None else written.rounding(value, lanes)
        return emit.store(
            self.operands.out, [place[a] for a in self.operands.spec.output_layout], value, lanes
        )


def _nested(name: str, extent: int, body: Callable[[Expr, Expr], Stmt]) -> Callable[[Expr], Stmt]:
    """The body of a loop that is a further loop inside it."""
    return lambda outer: emit.loop(name, extent, lambda inner: body(inner, outer))

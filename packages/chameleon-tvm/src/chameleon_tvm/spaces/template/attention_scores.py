"""Scores of a tile of queries with a block of keys, and their powers.

Queries are in the lanes, so that a row's maximum and sum are those of a lane, and keys are read
where they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from chameleon_tvm.operators.exponentials import exponential
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.spaces.template import emit
from chameleon_tvm.spaces.template.attention_parts import Operands, Row, assign, held
from chameleon_tvm.spaces.template.emit import Buffer, Expr, Stmt

LOWEST = -3.4028234663852886e38
"""The least finite float32. A maximum that starts here is never minus infinity, from which the
scores of a query without a visible key could not be subtracted; and TVM lets LLVM assume that
there is no infinity among constants."""


class ScoreLoops:
    """Writes what comes before values are weighted.

    Args:
        operands: of the function.
    """

    def __init__(self, operands: Operands) -> None:
        self.operands = operands

    def scaled_queries(self, row: Row) -> Stmt:
        """Transpose a tile of queries, so that lanes are queries."""
        scale = emit.constant(self.operands.spec.scale)
        query, dot, depth = self.operands.query, self.operands.dot, self.operands.dot.depth
        rounded = self.operands.rounded

        def element(q: Expr, d: Expr, part: int) -> Stmt:
            place = (row.b, row.h, row.first + q, d if depth == 1 else d * depth + part)
            value = query.as_held(*place) if rounded else query.load(*place) * scale
            return emit.store(row.queries, [d, q if depth == 1 else q * depth + part], value)

        def elements(q: Expr, d: Expr) -> Stmt:
            return emit.sequence([element(q, d, part) for part in range(depth)])

        def feature(d: Expr) -> Stmt:
            blank = (row.vectors * self.operands.lanes - row.valid) * depth
            statements = [emit.loop("q", row.valid, lambda q: elements(q, d))]
            if blank:
                zero = emit.zero(dtype=dot.weights)
                clear = emit.loop(
                    "z",
                    blank,
                    lambda z: emit.store(row.queries, [d, row.valid * depth + z], zero),
                )
                statements.append(clear)
            return emit.sequence(statements)

        return emit.loop("d", self.operands.spec.query[3] // depth, feature)

    def _copy_mask(self, row: Row, start: Expr) -> Stmt:
        """The mask of a tile of scores, transposed."""

        def element(q: Expr, k: Expr) -> Stmt:
            return emit.store(row.mask, [k, q], self._masked(row, row.first + q, start + k))

        return emit.loop(
            "q",
            row.valid,
            lambda q: emit.loop("k", self.operands.tile.key_rows, lambda k: element(q, k)),
        )

    def _masked(self, row: Row, query: Expr, key: Expr) -> Expr:
        """What the mask adds to a score."""
        place = (row.b, row.h, query, key)
        at = [0 if one == 1 else p for one, p in zip(self.operands.spec.mask, place, strict=True)]
        return emit.load(self.operands.mask, at)

    def tiles(self, row: Row, start: Expr, count: Expr) -> Stmt:
        """Scores of a block, and each lane's largest one; the last tile overlaps its neighbour."""
        rows, lanes = self.operands.tile.key_rows, self.operands.lanes
        if isinstance(count, int):
            tiles: Expr = math.ceil(count / rows)
        else:
            tiles = tirx.floordiv(count + rows - 1, rows)

        def tile(index: Expr) -> Stmt:
            first = index * rows if tiles == 1 else tirx.min(index * rows, count - rows)
            sums = emit.registers(rows * row.vectors, lanes)
            products = emit.loop(
                "d",
                self.operands.spec.query[3] // self.operands.dot.depth // self.operands.tile.unroll,
                lambda d: self._products(row, start + first, d, sums),
            )
            statements = [*self._start(row, start + first, sums), products]
            for place, one in enumerate(sums):
                r, v = divmod(place, row.vectors)
                score = self._masked_sum(row, start + first, (r, v), held(one))
                statements.extend(self._scored(row, start, first + r, v, score))
            return emit.local(sums, emit.sequence(statements))

        return emit.loop("key", tiles, tile)

    def _start(self, row: Row, first: Expr, sums: Sequence[Buffer]) -> list[Stmt]:
        """What the sums of products are added to: what is added to scaled ones in the end else."""
        lanes, mask = self.operands.lanes, self.operands.spec.mask
        by_query = bool(mask) and mask[2] > 1
        places = (divmod(place, row.vectors) for place in range(len(sums)))
        filled = [
            assign(
                one,
                emit.zero(lanes)
                if self.operands.rounded or not mask
                else self._added(row, first, *at),
            )
            for one, at in zip(sums, places, strict=True)
        ]
        return [self._copy_mask(row, first), *filled] if by_query else filled

    def _added(self, row: Row, first: Expr, r: int, v: int) -> Expr:
        """What the mask adds to a vector of a tile's scores."""
        lanes = self.operands.lanes
        if self.operands.spec.mask[2] > 1:
            return emit.load(row.mask, [r, v * lanes], lanes)
        return emit.splat(self._masked(row, 0, first + r), lanes)

    def _masked_sum(self, row: Row, first: Expr, place: tuple[int, int], sums: Expr) -> Expr:
        """Scores of sums: these themselves where queries were scaled and the mask was there."""
        if not self.operands.rounded:
            return sums
        scaled = sums * emit.constant(self.operands.spec.scale, self.operands.lanes)
        return scaled + self._added(row, first, *place) if self.operands.spec.mask else scaled

    def _products(self, row: Row, first: Expr, d: Expr, sums: Sequence[Buffer]) -> Stmt:
        """The products of some features of a tile of keys with all queries."""
        lanes, statements = self.operands.lanes, []
        dot, wide = self.operands.dot, self.operands.lanes * self.operands.dot.depth
        for u in range(self.operands.tile.unroll):
            at = d * self.operands.tile.unroll + u
            queries = [emit.load(row.queries, [at, v * wide], wide) for v in range(row.vectors)]
            for r in range(self.operands.tile.key_rows):
                key = emit.splat(self._key(row, first + r, at), lanes)
                for v, query in enumerate(queries):
                    into = sums[r * row.vectors + v]
                    statements.append(assign(into, dot.emit(held(into), key, query, lanes)))
        return emit.sequence(statements)

    def _key(self, row: Row, k: Expr, d: Expr) -> Expr:
        """A feature of a key, or a group of features as one word."""
        shared, depth = self.operands.head_of_keys(row), self.operands.dot.depth
        if depth == 1:
            return self.operands.key.load(row.b, shared, k, d)
        group = self.operands.key.as_held(row.b, shared, k, d * depth, depth)
        return tirx.reinterpret(self.operands.dot.word, group)

    def _scored(self, row: Row, start: Expr, k: Expr, v: int, score: Expr) -> list[Stmt]:
        lanes = self.operands.lanes
        if self.operands.spec.causal:
            query = tirx.Ramp(row.first + v * lanes, tirx.IntImm("int32", 1), lanes)
            hidden = emit.constant(LOWEST, lanes)
            score = tirx.Select(emit.splat(start + k, lanes) <= query, score, hidden)
        kept = emit.buffer("score", (lanes,))
        return [
            emit.local(
                kept,
                emit.sequence(
                    [
                        assign(kept, score),
                        emit.store(row.scores, [k, v * lanes], held(kept), lanes),
                        assign(row.most[v], tirx.max(held(row.most[v]), held(kept))),
                    ]
                ),
            )
        ]

    def powers(self, row: Row, before: Sequence[Buffer], count: Expr) -> Stmt:
        """Scores become powers of e; the sums so far are scaled to the new largest score."""
        lanes = self.operands.lanes
        factors = []
        for v, (old, most, total) in enumerate(zip(before, row.most, row.totals, strict=True)):
            if self.operands.blocks == 1:
                continue
            factor = exponential(held(old) - held(most), lanes)
            factors.append(emit.store(row.scales, [v * lanes], factor, lanes))
            scaled = held(total) * emit.load(row.scales, [v * lanes], lanes)
            factors.append(assign(total, scaled))

        def key(k: Expr) -> Stmt:
            statements = []
            for v, (most, total) in enumerate(zip(row.most, row.totals, strict=True)):
                place = [k, v * lanes]
                score = emit.load(row.scores, place, lanes) - held(most)
                power = emit.buffer("power", (lanes,))
                statements.append(
                    emit.local(
                        power,
                        emit.sequence(
                            [
                                assign(power, exponential(score, lanes)),
                                emit.store(row.scores, place, held(power), lanes),
                                assign(total, held(total) + held(power)),
                            ]
                        ),
                    )
                )
            return emit.sequence(statements)

        statements = [*factors, emit.loop("k", count, key)]
        if self.operands.blocks == 1:
            statements.extend(self.shares(row))
        return emit.sequence(statements)

    def shares(self, row: Row) -> list[Stmt]:
        """Each query's factor that makes sums of values means.

        The largest score adds a power of 1; where every key is hidden, sums are 0 and stay so.
        """
        one = emit.constant(1.0, self.operands.lanes)
        return [
            emit.store(
                row.scales,
                [v * self.operands.lanes],
                one / tirx.max(held(total), one),
                self.operands.lanes,
            )
            for v, total in enumerate(row.totals)
        ]

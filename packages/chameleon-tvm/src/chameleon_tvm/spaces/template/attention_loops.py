"""Attention as one TensorIR function: scores, softmax and product, block of keys by block of keys.

Loops: heads and tiles of queries (parallel) | blocks of keys | scores, powers, sums of values.
Queries are in the lanes while scores are computed, so that a row's maximum and sum are those of a
lane, keys are read where they are, and powers need no transposition to be multiplied with values.
Between blocks of keys, what was summed so far is scaled to the new maximum (Dao et al. 2022,
section 3.1); one block of all keys needs no such step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from chameleon_tvm.instructions.base import Dot
from chameleon_tvm.instructions.conversions import rounding
from chameleon_tvm.instructions.emission import importing
from chameleon_tvm.operators.attention_specs import AttentionSpec, ordered
from chameleon_tvm.operators.exponentials import exponential
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.spaces.template import emit
from chameleon_tvm.spaces.template.attention_parts import (
    AttentionTile,
    Operands,
    Part,
    Row,
    assign,
    grouped,
    held,
    parts_of,
    pieces_of,
    rounded_up,
    runs_of,
)
from chameleon_tvm.spaces.template.emit import Buffer, Expr, Stmt
from chameleon_tvm.types import FLOAT32, STORAGE


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
        value = rounding(STORAGE[self.operands.spec.output_dtype], value, lanes)
        return emit.store(
            self.operands.out, [place[a] for a in self.operands.spec.output_layout], value, lanes
        )


def _nested(name: str, extent: int, body: Callable[[Expr, Expr], Stmt]) -> Callable[[Expr], Stmt]:
    """The body of a loop that is a further loop inside it."""
    return lambda outer: emit.loop(name, extent, lambda inner: body(inner, outer))


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


class AttentionLoops:
    """Writes the function of one tile.

    Args:
        spec: the operator.
        tile: the point of the design space.
        lanes: elements of a vector register.
        dot: what queries and keys are multiplied with.
    """

    def __init__(self, spec: AttentionSpec, tile: AttentionTile, lanes: int, dot: Dot) -> None:
        self.spec = spec
        self.tile = tile
        self.lanes = lanes
        query, key, value = self.parts = parts_of(spec)
        if tile.copy:
            # Copies are what the inner loops read: widened once rather than for each query.
            kept = key.kind if dot.depth > 1 else STORAGE[FLOAT32]
            rows = emit.buffer("key_rows", spec.key, dtype=dot.data)
            key = Part(data=rows, layout="BHSD", kind=kept)
            value = Part(data=emit.buffer("value_rows", spec.value), layout="BHSD")
        self.operands = Operands(
            spec=spec,
            tile=tile,
            lanes=lanes,
            dot=dot,
            query=query,
            key=key,
            value=value,
            mask=emit.buffer("mask", spec.mask) if spec.mask else None,
            out=emit.buffer(
                "out",
                ordered(spec.output, spec.output_layout),
                dtype=STORAGE[spec.output_dtype].storage_dtype,
            ),
        )
        self.scores = ScoreLoops(self.operands)
        self.sums = WeightedSumLoops(self.operands)

    def function(self) -> tirx.PrimFunc:
        """The whole function: (query, key, value), or the array they share, [mask], out."""
        body = self._tiles()
        if self.tile.copy:
            copies = [self.operands.key.data, self.operands.value.data]
            body = emit.local(copies, emit.sequence([self._copy(), body]))
        inputs = list({part.data: None for part in self.parts})
        more = [] if self.operands.mask is None else [self.operands.mask]
        body = importing(body, [self.operands.dot])
        return emit.function([*inputs, *more, self.operands.out], body)

    def _copy(self) -> Stmt:
        batch, heads, keys, _ = self.spec.key
        _, key, value = self.parts

        def token(index: Expr) -> Stmt:
            b, h, s = emit.split(index, (batch, heads, keys))

            def copied(target: Part, source: Part, features: int) -> Stmt:
                read = source.as_held if target.kind == source.kind else source.load

                def one(d: Expr) -> Stmt:
                    return emit.store(target.data, [b, h, s, d], read(b, h, s, d))

                return emit.loop("d", features, one)

            return emit.sequence(
                [
                    copied(self.operands.key, key, self.spec.query[3]),
                    copied(self.operands.value, value, self.spec.value[3]),
                ]
            )

        return emit.parallel("token", batch * heads * keys, token)

    def _tiles(self) -> Stmt:
        batch, heads, queries, _ = self.spec.query
        width = self.tile.query_vectors * self.lanes
        whole, rest = divmod(queries, width)
        tiles = whole + (rest > 0)

        def one(index: Expr) -> Stmt:
            b, h, t = emit.split(index, (batch, heads, tiles))
            last = self._tile(b, h, t * width, rest) if rest else None
            if last is None or not whole:
                return last or self._tile(b, h, t * width, width)
            return emit.choose([(t < whole, self._tile(b, h, t * width, width))], last)

        return emit.parallel("tile", batch * heads * tiles, one)

    def _tile(self, b: Expr, h: Expr, first: Expr, valid: int) -> Stmt:
        vectors = rounded_up(valid, self.lanes)
        width = vectors * self.lanes
        dot, depth = self.operands.dot, self.operands.dot.depth
        row = Row(
            b=b,
            h=h,
            first=first,
            valid=valid,
            vectors=vectors,
            queries=emit.buffer(
                "queries", (self.spec.query[3] // depth, width * depth), dtype=dot.weights
            ),
            mask=emit.buffer("masked", (self.tile.key_rows, width)),
            scores=emit.buffer("scores", (min(self.tile.block, self.operands.keys), width)),
            sums=emit.buffer("sums", (valid, self.spec.value[3])),
            scales=emit.buffer("scales", (width,)),
            most=emit.registers(vectors, self.lanes, name="most"),
            totals=emit.registers(vectors, self.lanes, name="total"),
        )
        start = [
            *(assign(one, emit.constant(LOWEST, self.lanes)) for one in row.most),
            *(assign(one, emit.zero(self.lanes)) for one in row.totals),
        ]
        scratch = [row.queries, row.scores, row.scales, *row.most, *row.totals]
        if len(self.spec.mask) and self.spec.mask[2] > 1:
            scratch.append(row.mask)
        if self.operands.blocks == 1:
            body = self._block(row, 0)
        else:
            scratch.append(row.sums)
            start.append(self.sums.cleared(row))
            count: Expr = self.operands.blocks
            if self.spec.causal:
                seen = tirx.min(first + valid, self.operands.keys)
                count = tirx.floordiv(seen + self.tile.block - 1, self.tile.block)
            loop = emit.loop("block", count, lambda at: self._block(row, at * self.tile.block))
            body = emit.sequence([loop, *self.scores.shares(row), self.sums.written(row)])
        return emit.local(scratch, emit.sequence([*start, self.scores.scaled_queries(row), body]))

    def _block(self, row: Row, start: Expr) -> Stmt:
        """Everything that a block of keys adds to a tile of queries."""
        count: Expr = (
            self.operands.keys
            if self.operands.blocks == 1
            else tirx.min(self.tile.block, self.operands.keys - start)
        )
        if self.spec.causal:
            # Later keys are hidden from the whole tile; but a tile of scores needs enough keys.
            seen = tirx.max(row.first + row.valid - start, self.tile.key_rows)
            count = tirx.min(count, seen)
        before = emit.registers(row.vectors, self.lanes, name="before")
        statements = [
            *(assign(old, held(new)) for old, new in zip(before, row.most, strict=True)),
            self.scores.tiles(row, start, count),
            self.scores.powers(row, before, count),
            self.sums.added(row, start, count),
        ]
        return emit.local(before, emit.sequence(statements))

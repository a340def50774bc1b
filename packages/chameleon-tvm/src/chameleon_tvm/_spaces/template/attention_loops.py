"""Attention as one TensorIR function: scores, softmax and product for each block of keys.

Loops, from the outermost: heads and tiles of queries (parallel); blocks of keys; scores,
exponentials, sums of values. Queries are in the lanes while scores are computed. So each lane holds
the maximum and the sum of one query's scores. Keys are read in place, and the product with values
needs no transposition.

Between blocks of keys, the sums are scaled to the new maximum (Dao et al. 2022, section 3.1). This
step is left out if one block has all keys.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Buffer, Expr, Stmt, assign, read
from chameleon_tvm._instructions.base import Dot
from chameleon_tvm._instructions.emission import importing
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._operators.attention_specs import AttentionSpec, ordered
from chameleon_tvm._spaces.template.attention_parts import (
    AttentionTile,
    Part,
    Row,
    exponential,
    grouped,
    parts_of,
    pieces_of,
    runs_of,
)
from chameleon_tvm._types import FLOAT32, STORAGE

LOWEST = -3.4028234663852886e38
"""The smallest finite float32, with which a maximum starts. So the maximum is never minus infinity,
from which the scores of a query without a visible key could not be subtracted. Also, TVM lets LLVM
assume that no constant is infinite."""


class AttentionLoops:
    """Writes the TensorIR function of attention for one configuration."""

    def __init__(self, spec: AttentionSpec, tile: AttentionTile, lanes: int, dot: Dot) -> None:
        self.spec = spec
        self.tile = tile
        self.lanes = lanes
        self.dot = dot
        self.keys = spec.key[2]
        # Blocks of keys, the last of which may be shorter.
        self.blocks = math.ceil(self.keys / tile.key_block)
        # Queries and keys of two bytes are multiplied as they are: a query that is multiplied with
        # the scale would be rounded once more.
        self.rounded = dot.depth > 1
        self.parts = parts_of(spec)
        self.query, self.key, self.value = self.parts
        if tile.copy:
            # Copies are what the inner loops read: widened once rather than for each query.
            kind = self.key.kind if self.rounded else STORAGE[FLOAT32]
            rows = emit.buffer("key_rows", spec.key, dtype=dot.data)
            self.key = Part(data=rows, layout="BHSD", kind=kind)
            self.value = Part(data=emit.buffer("value_rows", spec.value), layout="BHSD")
        self.mask = emit.buffer("mask", spec.mask) if spec.mask else None
        self.out = emit.buffer(
            "out",
            ordered(spec.output, spec.output_layout),
            dtype=STORAGE[spec.output_dtype].storage_dtype,
        )

    def function(self) -> tirx.PrimFunc:
        """The complete function; parameters: query, key, value (or packed), [mask], out."""
        body = self._tiles()
        if self.tile.copy:
            copies = [self.key.data, self.value.data]
            body = emit.local(copies, emit.sequence([self._copy(), body]))
        inputs = list({part.data: None for part in self.parts})
        more = [] if self.mask is None else [self.mask]
        return emit.function([*inputs, *more, self.out], importing(body, [self.dot]))

    def _copy(self) -> Stmt:
        batch, heads, keys, _ = self.spec.key
        _, key, value = self.parts

        def token(index: Expr) -> Stmt:
            b, h, s = emit.split(index, (batch, heads, keys))

            def copied(target: Part, source: Part, features: int) -> Stmt:
                load = source.as_held if target.kind == source.kind else source.load

                def element(d: Expr) -> Stmt:
                    return emit.store(target.data, [b, h, s, d], load(b, h, s, d))

                return emit.loop("d", features, element)

            keys_copied = copied(self.key, key, self.spec.query[3])
            return emit.sequence([keys_copied, copied(self.value, value, self.spec.value[3])])

        return emit.parallel("token", batch * heads * keys, token)

    def _tiles(self) -> Stmt:
        batch, heads, queries, _ = self.spec.query
        width = self.tile.query_vectors * self.lanes
        whole, rest = divmod(queries, width)
        tiles = whole + (rest > 0)

        def tile(index: Expr) -> Stmt:
            b, h, t = emit.split(index, (batch, heads, tiles))
            last = self._tile(b, h, t * width, rest) if rest else None
            if last is None or not whole:
                return last or self._tile(b, h, t * width, width)
            return emit.choose([(t < whole, self._tile(b, h, t * width, width))], last)

        return emit.parallel("tile", batch * heads * tiles, tile)

    def _tile(self, b: Expr, h: Expr, first: Expr, valid: int) -> Stmt:
        vectors = math.ceil(valid / self.lanes)
        width = vectors * self.lanes
        depth = self.dot.depth
        row = Row(
            b=b,
            h=h,
            shared=tirx.floordiv(h, self.spec.group),
            first=first,
            valid=valid,
            vectors=vectors,
            queries=emit.buffer(
                "queries", (self.spec.query[3] // depth, width * depth), dtype=self.dot.weights
            ),
            mask=emit.buffer("masked", (self.tile.key_rows, width)),
            scores=emit.buffer("scores", (min(self.tile.key_block, self.keys), width)),
            sums=emit.buffer("sums", (valid, self.spec.value[3])),
            scales=emit.buffer("scales", (width,)),
            most=emit.registers(vectors, self.lanes, name="most"),
            totals=emit.registers(vectors, self.lanes, name="total"),
        )
        start = [
            *(assign(register, emit.constant(LOWEST, self.lanes)) for register in row.most),
            *(assign(register, emit.zero(self.lanes)) for register in row.totals),
        ]
        scratch = [row.queries, row.scores, row.scales, *row.most, *row.totals]
        if self._masked_by_query:
            scratch.append(row.mask)
        if self.blocks == 1:
            body = self._block(row, 0)
        else:
            scratch.append(row.sums)
            columns = {"r": valid, "z": self.spec.value[3]}
            clear = emit.loops(columns, lambda q, z: emit.store(row.sums, [q, z], emit.zero()))
            start.append(clear)
            count: Expr = self.blocks
            if self.spec.causal:
                seen = tirx.min(first + valid, self.keys)
                count = tirx.floordiv(seen + self.tile.key_block - 1, self.tile.key_block)
            loop = emit.loop("block", count, lambda at: self._block(row, at * self.tile.key_block))
            body = emit.sequence([loop, *self._shares(row), self._written(row)])
        return emit.local(scratch, emit.sequence([*start, self._scaled_queries(row), body]))

    def _block(self, row: Row, start: Expr) -> Stmt:
        """The statements that add a block of keys to the outputs of a tile of queries."""
        count: Expr = (
            self.keys if self.blocks == 1 else tirx.min(self.tile.key_block, self.keys - start)
        )
        if self.spec.causal:
            # Later keys are hidden from the whole tile; but a tile of scores needs enough keys.
            seen = tirx.max(row.first + row.valid - start, self.tile.key_rows)
            count = tirx.min(count, seen)
        before = emit.registers(row.vectors, self.lanes, name="before")
        statements = [
            *(assign(old, read(new)) for old, new in zip(before, row.most, strict=True)),
            self._scores(row, start, count),
            self._powers(row, before, count),
            self._added_values(row, start, count),
        ]
        return emit.local(before, emit.sequence(statements))

    # -- scores -----------------------------------------------------------------------------

    def _scaled_queries(self, row: Row) -> Stmt:
        """Transpose a tile of queries, so that lanes are queries."""
        scale = emit.constant(self.spec.scale)
        depth = self.dot.depth

        def element(q: Expr, d: Expr, part: int) -> Stmt:
            index = (row.b, row.h, row.first + q, d if depth == 1 else d * depth + part)
            value = self.query.as_held(*index) if self.rounded else self.query.load(*index) * scale
            return emit.store(row.queries, [d, q if depth == 1 else q * depth + part], value)

        def elements(q: Expr, d: Expr) -> Stmt:
            return emit.sequence([element(q, d, part) for part in range(depth)])

        def feature(d: Expr) -> Stmt:
            blank = (row.vectors * self.lanes - row.valid) * depth
            statements = [emit.loop("q", row.valid, lambda q: elements(q, d))]
            if blank:
                zero, end = emit.zero(dtype=self.dot.weights), row.valid * depth
                clear = emit.loop("z", blank, lambda z: emit.store(row.queries, [d, end + z], zero))
                statements.append(clear)
            return emit.sequence(statements)

        return emit.loop("d", self.spec.query[3] // depth, feature)

    @property
    def _masked_by_query(self) -> bool:
        """Whether the operator has a mask with different rows for different queries."""
        return bool(self.spec.mask) and self.spec.mask[2] > 1

    def _copy_mask(self, row: Row, start: Expr) -> Stmt:
        """Copy the mask of a tile of scores to scratch, transposed."""

        def element(q: Expr, k: Expr) -> Stmt:
            return emit.store(row.mask, [k, q], self._masked(row, row.first + q, start + k))

        return emit.loops({"q": row.valid, "k": self.tile.key_rows}, element)

    def _masked(self, row: Row, query: Expr, key: Expr) -> Expr:
        """The number that the mask adds to a score."""
        indices = (row.b, row.h, query, key)
        at = [0 if size == 1 else p for size, p in zip(self.spec.mask, indices, strict=True)]
        return emit.load(self.mask, at)

    def _scores(self, row: Row, start: Expr, count: Expr) -> Stmt:
        """Scores of a block, and each lane's maximum; the last tile overlaps its neighbour."""
        rows, unroll = self.tile.key_rows, self.tile.unroll
        if isinstance(count, int):
            tiles: Expr = math.ceil(count / rows)
        else:
            tiles = tirx.floordiv(count + rows - 1, rows)

        def tile(index: Expr) -> Stmt:
            first = index * rows if tiles == 1 else tirx.min(index * rows, count - rows)
            sums = emit.registers(rows * row.vectors, self.lanes)
            steps = self.spec.query[3] // self.dot.depth // unroll
            products = emit.loop(
                "d", steps, lambda d: self._products(row, start + first, d * unroll, sums)
            )
            statements = [*self._start(row, start + first, sums), products]
            for number, register in enumerate(sums):
                r, v = divmod(number, row.vectors)
                score = read(register)
                if self.rounded:
                    score = score * emit.constant(self.spec.scale, self.lanes)
                    if self.mask is not None:
                        score = score + self._added(row, start + first, r, v)
                statements.append(self._scored(row, start, first + r, v, score))
            return emit.local(sums, emit.sequence(statements))

        return emit.loop("key", tiles, tile)

    def _start(self, row: Row, first: Expr, sums: Sequence[Buffer]) -> list[Stmt]:
        """Initial values of the sums of products: the mask if queries were scaled, else zero."""
        plain = self.rounded or self.mask is None
        filled = [
            assign(
                register,
                emit.zero(self.lanes)
                if plain
                else self._added(row, first, *divmod(number, row.vectors)),
            )
            for number, register in enumerate(sums)
        ]
        return [self._copy_mask(row, first), *filled] if self._masked_by_query else filled

    def _added(self, row: Row, first: Expr, r: int, v: int) -> Expr:
        """The numbers that the mask adds to a vector of a tile's scores."""
        if self._masked_by_query:
            return emit.load(row.mask, [r, v * self.lanes], self.lanes)
        return emit.splat(self._masked(row, 0, first + r), self.lanes)

    def _products(self, row: Row, first: Expr, d: Expr, sums: Sequence[Buffer]) -> Stmt:
        """Products of some features of a tile of keys with all queries of a tile."""
        statements = []
        wide = self.lanes * self.dot.depth
        for u in range(self.tile.unroll):
            at = d + u
            queries = [emit.load(row.queries, [at, v * wide], wide) for v in range(row.vectors)]
            for r in range(self.tile.key_rows):
                key = emit.splat(self._key(row, first + r, at), self.lanes)
                for v, query in enumerate(queries):
                    into = sums[r * row.vectors + v]
                    total = self.dot.emit(read(into), key, query, self.lanes)
                    statements.append(assign(into, total))
        return emit.sequence(statements)

    def _key(self, row: Row, k: Expr, d: Expr) -> Expr:
        """A feature of a key, or a group of features as one machine word."""
        depth = self.dot.depth
        if depth == 1:
            return self.key.load(row.b, row.shared, k, d)
        group = self.key.as_held(row.b, row.shared, k, d * depth, depth)
        return tirx.reinterpret(self.dot.word, group)

    def _scored(self, row: Row, start: Expr, k: Expr, v: int, score: Expr) -> Stmt:
        lanes = self.lanes
        if self.spec.causal:
            query = tirx.Ramp(row.first + v * lanes, tirx.IntImm("int32", 1), lanes)
            hidden = emit.constant(LOWEST, lanes)
            score = tirx.Select(emit.splat(start + k, lanes) <= query, score, hidden)
        register = emit.buffer("score", (lanes,))
        statements = [
            assign(register, score),
            emit.store(row.scores, [k, v * lanes], read(register), lanes),
            assign(row.most[v], tirx.max(read(row.most[v]), read(register))),
        ]
        return emit.local(register, emit.sequence(statements))

    # -- powers -----------------------------------------------------------------------------

    def _powers(self, row: Row, before: Sequence[Buffer], count: Expr) -> Stmt:
        """Replace scores by exponentials, and scale earlier sums to the new maximum."""
        lanes = self.lanes
        factors = []
        for v, (old, most, total) in enumerate(zip(before, row.most, row.totals, strict=True)):
            if self.blocks == 1:
                continue
            factor = exponential(read(old) - read(most))
            factors.append(emit.store(row.scales, [v * lanes], factor, lanes))
            scaled = read(total) * emit.load(row.scales, [v * lanes], lanes)
            factors.append(assign(total, scaled))

        def power(k: Expr, v: int) -> Stmt:
            indices, total = [k, v * lanes], row.totals[v]
            score = emit.load(row.scores, indices, lanes) - read(row.most[v])
            power = emit.buffer("power", (lanes,))
            statements = [
                assign(power, exponential(score)),
                emit.store(row.scores, indices, read(power), lanes),
                assign(total, read(total) + read(power)),
            ]
            return emit.local(power, emit.sequence(statements))

        def key(k: Expr) -> Stmt:
            return emit.sequence([power(k, v) for v in range(row.vectors)])

        shares = self._shares(row) if self.blocks == 1 else []
        return emit.sequence([*factors, emit.loop("k", count, key), *shares])

    def _shares(self, row: Row) -> list[Stmt]:
        """For each query, the factor by which sums of values become weighted means.

        The largest score contributes exp(0) = 1 to the divisor. If all keys are hidden, the sums
        stay 0.
        """
        unit, lanes = emit.constant(1.0, self.lanes), self.lanes
        return [
            emit.store(row.scales, [v * lanes], unit / tirx.max(read(total), unit), lanes)
            for v, total in enumerate(row.totals)
        ]

    # -- values -----------------------------------------------------------------------------

    def _added_values(self, row: Row, start: Expr, count: Expr) -> Stmt:
        """Add the values of a block, multiplied by the exponentials of their scores."""
        columns = grouped(pieces_of(self.spec.value[3], self.lanes), self.tile.value_vectors)
        statements = []
        for first, rows, times in runs_of(row.valid, self.tile.query_rows):
            for begin, pieces, repeats in columns:
                tile = partial(
                    self._mix,
                    row=row,
                    keys=(start, count),
                    queries=(first, rows),
                    columns=(begin, pieces),
                )
                statements.append(emit.loops({"c": repeats, "q": times}, tile))
        return emit.sequence(statements)

    def _mix(
        self,
        c: Expr,
        run: Expr,
        *,
        row: Row,
        keys: tuple[Expr, Expr],
        queries: tuple[Expr, int],
        columns: tuple[Expr, tuple[int, ...]],
    ) -> Stmt:
        """A tile of outputs: some queries, and vectors of features of the given lanes."""
        (start, count), (first, rows), (begin, pieces) = keys, queries, columns
        q, begin = first + run * rows, begin + c * sum(pieces)
        places = [begin + sum(pieces[:at]) for at in range(len(pieces))]
        tile = [
            (r, column, lanes, emit.buffer(f"mixed{r}_{at}", (lanes,)))
            for r in range(rows)
            for at, (column, lanes) in enumerate(zip(places, pieces, strict=True))
        ]

        def scale(r: int, lanes: int) -> Expr:
            return emit.splat(emit.load(row.scales, [q + r]), lanes)

        def before(r: int, column: Expr, lanes: int) -> Expr:
            if self.blocks == 1:
                return emit.zero(lanes)
            return emit.load(row.sums, [q + r, column], lanes) * scale(r, lanes)

        def key(k: Expr) -> Stmt:
            values = [
                self.value.load(row.b, row.shared, start + k, column, lanes)
                for column, lanes in zip(places, pieces, strict=True)
            ]
            statements = []
            for at, (r, _, lanes, into) in enumerate(tile):
                power = emit.splat(emit.load(row.scores, [k, q + r]), lanes)
                statements.append(assign(into, read(into) + power * values[at % len(pieces)]))
            return emit.sequence(statements)

        def last(r: int, column: Expr, lanes: int, total: Buffer) -> Stmt:
            if self.blocks == 1:
                return self._write(row, q + r, column, read(total) * scale(r, lanes), lanes)
            return emit.store(row.sums, [q + r, column], read(total), lanes)

        statements = [
            *(assign(register, before(r, at, lanes)) for r, at, lanes, register in tile),
            emit.loop("k", count, key),
            *(last(*register) for register in tile),
        ]
        return emit.local([register for *_, register in tile], emit.sequence(statements))

    def _written(self, row: Row) -> Stmt:
        """Write the outputs: the sums of all blocks, divided by the sums of the exponentials."""

        def query(q: Expr) -> Stmt:
            scale = emit.load(row.scales, [q])

            def column(d: Expr) -> Stmt:
                return self._write(row, q, d, emit.load(row.sums, [q, d]) * scale, 1)

            return emit.loop("d", self.spec.value[3], column)

        return emit.loop("q", row.valid, query)

    def _write(self, row: Row, q: Expr, d: Expr, value: Expr, lanes: int) -> Stmt:
        indices = dict(zip("BHSD", (row.b, row.h, row.first + q, d), strict=True))
        value = emit.rounding(STORAGE[self.spec.output_dtype], value)
        return emit.store(self.out, [indices[a] for a in self.spec.output_layout], value, lanes)

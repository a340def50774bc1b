"""Attention as one TensorIR function: scores, softmax and product, block of keys by block of keys.

Loops: heads and tiles of queries (parallel) | blocks of keys | scores, powers, sums of values.
Queries are in the lanes while scores are computed, so that a row's maximum and sum are those of a
lane, keys are read where they are, and powers need no transposition to be multiplied with values.
Between blocks of keys, what was summed so far is scaled to the new maximum (Dao et al. 2022,
section 3.1); one block of all keys needs no such step.
"""

from __future__ import annotations

from chameleon_tvm.instructions.base import Dot
from chameleon_tvm.instructions.emission import importing
from chameleon_tvm.instructions.halves import half_of
from chameleon_tvm.operators.attention_specs import AttentionSpec, ordered
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.spaces.template import emit
from chameleon_tvm.spaces.template.attention_parts import (
    AttentionTile,
    Operands,
    Part,
    Row,
    assign,
    held,
    parts_of,
    rounded_up,
)
from chameleon_tvm.spaces.template.attention_scores import LOWEST, ScoreLoops
from chameleon_tvm.spaces.template.attention_values import WeightedSumLoops
from chameleon_tvm.spaces.template.emit import Expr, Stmt


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
            kept = key.half if dot.depth > 1 else None
            rows = emit.buffer("key_rows", spec.key, dtype=dot.data)
            key = Part(data=rows, layout="BHSD", half=kept)
            value = Part(data=emit.buffer("value_rows", spec.value), layout="BHSD")
        written = half_of(spec.output_dtype)
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
                dtype="float32" if written is None else written.held,
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
                read = source.load if target.half is None else source.as_held

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

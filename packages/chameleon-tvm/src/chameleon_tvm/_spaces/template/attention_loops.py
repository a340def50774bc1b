"""Attention as one TensorIR function: scores, softmax and product for each block of keys.

The parallel loop is over heads and tiles of queries. Lanes hold queries while scores are computed,
so the product with values needs no transposition. Between blocks of keys, sums are scaled to the
new maximum (Dao et al. 2022, section 3.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Buffer, Expr, Stmt, assign, read
from chameleon_tvm._instructions.base import Dot
from chameleon_tvm._instructions.emission import with_preludes
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._open_axes import BATCH, KEYS, QUERIES, extent_of
from chameleon_tvm._operators.attention_specs import AttentionSpec, ordered
from chameleon_tvm._spaces.template.attention_parts import (
    AttentionInput,
    AttentionTile,
    QueryPlace,
    QueryTile,
    attention_inputs,
    exponential,
    group_vectors,
    split_axis,
    vector_lengths,
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
        self.called_keys = extent_of(KEYS, self.keys)
        self.batch = extent_of(BATCH, spec.query[0])
        # The last block of keys may be shorter.
        self.blocks = math.ceil(self.keys / tile.key_block)
        # Instructions for 16-bit numbers multiply queries and keys unscaled, because a scaled query
        # would be rounded once more.
        self.multiplies_halves = dot.depth > 1
        self.inputs = attention_inputs(spec)
        self.query, self.key, self.value = self.inputs
        if tile.copy:
            # The inner loops read copies, which are widened once instead of for each query.
            kind = self.key.kind if self.multiplies_halves else STORAGE[FLOAT32]
            rows = emit.buffer("key_rows", spec.key, dtype=dot.data)
            self.key = AttentionInput(data=rows, layout="BHSD", kind=kind)
            self.value = AttentionInput(data=emit.buffer("value_rows", spec.value), layout="BHSD")
        self.mask = emit.buffer("mask", spec.mask) if spec.mask else None
        self.out = emit.buffer(
            "out",
            ordered(spec.output, spec.output_layout),
            dtype=STORAGE[spec.output_dtype].storage_dtype,
        )

    def function(self) -> tirx.PrimFunc:
        """The complete function; parameters: query, key, value (or packed), [mask], out."""
        parameters = list({part.data: None for part in self.inputs})
        more = [] if self.mask is None else [self.mask]
        body = with_preludes(self._body(), [self.dot])
        return emit.function([*parameters, *more, self.out], body)

    def _body(self) -> Stmt:
        """The statement that computes all outputs."""
        if not self.tile.copy:
            return self._tiles()
        copies = [self.key.data, self.value.data]
        return emit.allocate(copies, emit.sequence([self._copy(), self._tiles()]))

    def _copy(self) -> Stmt:
        heads, (_, key, value) = self.spec.key[1], self.inputs
        extents = self.batch, heads, self.called_keys

        def token(index: Expr) -> Stmt:
            b, h, s = emit.split(index, extents)

            def copy_features(
                target: AttentionInput, source: AttentionInput, features: int
            ) -> Stmt:
                load = source.load_stored if target.kind == source.kind else source.load

                def element(d: Expr) -> Stmt:
                    return emit.store(target.data, [b, h, s, d], load(b, h, s, d))

                return emit.loop("d", features, element)

            keys_copied = copy_features(self.key, key, self.spec.query[3])
            return emit.sequence(
                [keys_copied, copy_features(self.value, value, self.spec.value[3])]
            )

        return emit.parallel("token", math.prod(extents), token)

    def _tiles(self) -> Stmt:
        _, heads, queries, _ = self.spec.query
        width = self.tile.query_vectors * self.lanes
        full_tiles, remainder = divmod(queries, width)
        extents = self.batch, heads, emit.divided(extent_of(QUERIES, queries), width)

        def tile(index: Expr) -> Stmt:
            b, h, t = emit.split(index, extents)
            if self.tile.overlap:
                return self._tile(b, h, emit.tile_start(t, width, queries), width)
            last = self._tile(b, h, t * width, remainder) if remainder else None
            if last is None or not full_tiles:
                return last or self._tile(b, h, t * width, width)
            return emit.branch([(t < full_tiles, self._tile(b, h, t * width, width))], last)

        return emit.parallel("tile", math.prod(extents), tile)

    def _tile(self, b: Expr, h: Expr, first: Expr, valid: int) -> Stmt:
        vectors = math.ceil(valid / self.lanes)
        width = vectors * self.lanes
        depth = self.dot.depth
        tile = QueryTile(
            b=b,
            h=h,
            key_head=tirx.floordiv(h, self.spec.group),
            first=first,
            valid=valid,
            vectors=vectors,
            queries=emit.buffer(
                "queries", (self.spec.query[3] // depth, width * depth), dtype=self.dot.weights
            ),
            mask=emit.buffer("masked", (self.tile.key_rows, width)),
            scores=emit.buffer("scores", (min(self.tile.key_block, self.keys), width)),
            partial_outputs=emit.buffer("sums", (valid, self.spec.value[3])),
            scales=emit.buffer("scales", (width,)),
            maxima=emit.registers(vectors, self.lanes, name="most"),
            exponential_sums=emit.registers(vectors, self.lanes, name="total"),
        )
        initial = [
            *(assign(register, emit.constant(LOWEST, self.lanes)) for register in tile.maxima),
            *(assign(register, emit.zero(self.lanes)) for register in tile.exponential_sums),
        ]
        scratch = [tile.queries, tile.scores, tile.scales, *tile.maxima, *tile.exponential_sums]
        if self._mask_varies_by_query:
            scratch.append(tile.mask)
        if self.blocks == 1:
            body = self._block(tile, 0)
        else:
            scratch.append(tile.partial_outputs)
            columns = {"r": valid, "z": self.spec.value[3]}
            clear = emit.loops(
                columns, lambda q, z: emit.store(tile.partial_outputs, [q, z], emit.zero())
            )
            initial.append(clear)
            keys = self.called_keys
            if self.spec.causal:
                keys = tirx.min(first + valid, keys)
            count = emit.divided(keys, self.tile.key_block)
            loop = emit.loop("block", count, lambda at: self._block(tile, at * self.tile.key_block))
            body = emit.sequence([loop, *self._normalizers(tile), self._store_outputs(tile)])
        return emit.allocate(scratch, emit.sequence([*initial, self._scaled_queries(tile), body]))

    def _block(self, tile: QueryTile, first_key: Expr) -> Stmt:
        """Add a block of keys and values to the outputs of a tile of queries."""
        keys = count = self.called_keys
        if self.blocks > 1:
            count = tirx.min(self.tile.key_block, keys - first_key)
        if self.spec.causal:
            # Keys after the last query of the tile are hidden from all of it, but a tile of scores
            # needs enough keys.
            seen = tirx.max(tile.first + tile.valid - first_key, self.tile.key_rows)
            count = tirx.min(count, seen)
        # A call may have too few keys for the last tile of scores, which hides those after them.
        scored = count if isinstance(keys, int) else tirx.max(count, self.tile.key_rows)
        old_maxima = emit.registers(tile.vectors, self.lanes, name="before")
        statements = [
            *(assign(old, read(new)) for old, new in zip(old_maxima, tile.maxima, strict=True)),
            self._scores(tile, first_key, scored),
            self._exponentials(tile, old_maxima, count),
            self._accumulate_block(tile, first_key, count),
        ]
        return emit.allocate(old_maxima, emit.sequence(statements))

    # -- scores -----------------------------------------------------------------------------

    def _scaled_queries(self, tile: QueryTile) -> Stmt:
        """Transpose a tile of queries, so that lanes are queries."""
        scale = emit.constant(self.spec.scale)
        depth = self.dot.depth

        def element(q: Expr, d: Expr, part: int) -> Stmt:
            index = (tile.b, tile.h, tile.first + q, d if depth == 1 else d * depth + part)
            value = (
                self.query.load_stored(*index)
                if self.multiplies_halves
                else self.query.load(*index) * scale
            )
            return emit.store(tile.queries, [d, q if depth == 1 else q * depth + part], value)

        def elements(q: Expr, d: Expr) -> Stmt:
            return emit.sequence([element(q, d, part) for part in range(depth)])

        def feature(d: Expr) -> Stmt:
            padding = (tile.vectors * self.lanes - tile.valid) * depth
            statements = [emit.loop("q", tile.valid, lambda q: elements(q, d))]
            if padding:
                zero, end = emit.zero(dtype=self.dot.weights), tile.valid * depth
                clear = emit.loop(
                    "z", padding, lambda z: emit.store(tile.queries, [d, end + z], zero)
                )
                statements.append(clear)
            return emit.sequence(statements)

        return emit.loop("d", self.spec.query[3] // depth, feature)

    @property
    def _mask_varies_by_query(self) -> bool:
        """Whether the operator has a mask with different rows for different queries."""
        return bool(self.spec.mask) and self.spec.mask[2] > 1

    def _copy_mask(self, tile: QueryTile, first_key: Expr) -> Stmt:
        """Copy the mask of a tile of scores to scratch, transposed."""

        def element(q: Expr, k: Expr) -> Stmt:
            return emit.store(
                tile.mask, [k, q], self._mask_element(tile, tile.first + q, first_key + k)
            )

        return emit.loops({"q": tile.valid, "k": self.tile.key_rows}, element)

    def _mask_element(self, tile: QueryPlace, query: Expr, key: Expr, lanes: int = 1) -> Expr:
        """The numbers that the mask adds to the scores of neighbouring keys."""
        indices = (tile.b, tile.h, query, key)
        at = [0 if size == 1 else p for size, p in zip(self.spec.mask, indices, strict=True)]
        return emit.load(self.mask, at, lanes)

    def _scores(self, tile: QueryTile, first_key: Expr, count: Expr) -> Stmt:
        """Compute the scores of a block and each lane's maximum; the last tile may overlap."""
        rows, unroll = self.tile.key_rows, self.tile.unroll
        tiles = emit.divided(count, rows)

        def key_tile(index: Expr) -> Stmt:
            first = (
                index * rows if emit.is_number(tiles, 1) else tirx.min(index * rows, count - rows)
            )
            sums = emit.registers(rows * tile.vectors, self.lanes)
            steps = self.spec.query[3] // self.dot.depth // unroll
            products = emit.loop(
                "d", steps, lambda d: self._products(tile, first_key + first, d * unroll, sums)
            )
            statements = [*self._initial_sums(tile, first_key + first, sums), products]
            for number, register in enumerate(sums):
                r, v = divmod(number, tile.vectors)
                score = read(register)
                if self.multiplies_halves:
                    score = score * emit.constant(self.spec.scale, self.lanes)
                    if self.mask is not None:
                        score = score + self._mask_vector(tile, first_key + first, r, v)
                statements.append(self._store_score(tile, first_key, first + r, v, score))
            return emit.allocate(sums, emit.sequence(statements))

        return emit.loop("key", tiles, key_tile)

    def _initial_sums(self, tile: QueryTile, first: Expr, sums: Sequence[Buffer]) -> list[Stmt]:
        """Initialize the sums of products: with the mask if queries are scaled, else with zero."""
        starts_at_zero = self.multiplies_halves or self.mask is None
        initial = [
            assign(
                register,
                emit.zero(self.lanes)
                if starts_at_zero
                else self._mask_vector(tile, first, *divmod(number, tile.vectors)),
            )
            for number, register in enumerate(sums)
        ]
        return [self._copy_mask(tile, first), *initial] if self._mask_varies_by_query else initial

    def _mask_vector(self, tile: QueryTile, first: Expr, r: int, v: int) -> Expr:
        """The numbers that the mask adds to a vector of a tile's scores."""
        if self._mask_varies_by_query:
            return emit.load(tile.mask, [r, v * self.lanes], self.lanes)
        return emit.splat(self._mask_element(tile, 0, first + r), self.lanes)

    def _products(self, tile: QueryTile, first: Expr, d: Expr, sums: Sequence[Buffer]) -> Stmt:
        """Multiply some features of a tile of keys with those of all queries of the tile."""
        statements = []
        wide = self.lanes * self.dot.depth
        for u in range(self.tile.unroll):
            at = d + u
            queries = [emit.load(tile.queries, [at, v * wide], wide) for v in range(tile.vectors)]
            for r in range(self.tile.key_rows):
                key = emit.splat(self._key(tile, first + r, at), self.lanes)
                for v, query in enumerate(queries):
                    into = sums[r * tile.vectors + v]
                    total = self.dot.emit(read(into), key, query, self.lanes)
                    statements.append(assign(into, total))
        return emit.sequence(statements)

    def _key(self, tile: QueryTile, k: Expr, d: Expr) -> Expr:
        """A feature of a key, or a group of features as one machine word."""
        depth = self.dot.depth
        if depth == 1:
            return self.key.load(tile.b, tile.key_head, k, d)
        group = self.key.load_stored(tile.b, tile.key_head, k, d * depth, depth)
        return tirx.reinterpret(self.dot.word, group)

    def _store_score(self, tile: QueryTile, first_key: Expr, k: Expr, v: int, score: Expr) -> Stmt:
        lanes = self.lanes
        if not isinstance(self.called_keys, int) and not self.spec.causal:
            hidden = emit.constant(LOWEST, lanes)
            is_called = emit.splat(first_key + k < self.called_keys, lanes)
            score = tirx.Select(is_called, score, hidden)
        if self.spec.causal:
            query = tirx.Ramp(tile.first + v * lanes, tirx.IntImm("int32", 1), lanes)
            hidden = emit.constant(LOWEST, lanes)
            score = tirx.Select(emit.splat(first_key + k, lanes) <= query, score, hidden)
        register = emit.buffer("score", (lanes,))
        statements = [
            assign(register, score),
            emit.store(tile.scores, [k, v * lanes], read(register), lanes),
            assign(tile.maxima[v], tirx.max(read(tile.maxima[v]), read(register))),
        ]
        return emit.allocate(register, emit.sequence(statements))

    # -- powers -----------------------------------------------------------------------------

    def _exponentials(self, tile: QueryTile, old_maxima: Sequence[Buffer], count: Expr) -> Stmt:
        """Replace scores by exponentials, and scale earlier sums to the new maximum."""
        lanes = self.lanes
        factors = []
        for v, (old, most, total) in enumerate(
            zip(old_maxima, tile.maxima, tile.exponential_sums, strict=True)
        ):
            if self.blocks == 1:
                continue
            factor = exponential(read(old) - read(most))
            factors.append(emit.store(tile.scales, [v * lanes], factor, lanes))
            scaled = read(total) * emit.load(tile.scales, [v * lanes], lanes)
            factors.append(assign(total, scaled))

        def power(k: Expr, v: int) -> Stmt:
            indices, total = [k, v * lanes], tile.exponential_sums[v]
            score = emit.load(tile.scores, indices, lanes) - read(tile.maxima[v])
            power = emit.buffer("power", (lanes,))
            statements = [
                assign(power, exponential(score)),
                emit.store(tile.scores, indices, read(power), lanes),
                assign(total, read(total) + read(power)),
            ]
            return emit.allocate(power, emit.sequence(statements))

        def key(k: Expr) -> Stmt:
            return emit.sequence([power(k, v) for v in range(tile.vectors)])

        normalizers = self._normalizers(tile) if self.blocks == 1 else []
        return emit.sequence([*factors, emit.loop("k", count, key), *normalizers])

    def _normalizers(self, tile: QueryTile) -> list[Stmt]:
        """Store for each query the reciprocal of its sum of exponentials.

        The largest score contributes exp(0) = 1. If all keys are hidden, the outputs stay 0.
        """
        unit, lanes = emit.constant(1.0, self.lanes), self.lanes
        return [
            emit.store(tile.scales, [v * lanes], unit / tirx.max(read(total), unit), lanes)
            for v, total in enumerate(tile.exponential_sums)
        ]

    # -- values -----------------------------------------------------------------------------

    def _accumulate_block(self, tile: QueryTile, first_key: Expr, count: Expr) -> Stmt:
        """Add the values of a block, multiplied by the exponentials of their scores (PV)."""
        columns = group_vectors(
            vector_lengths(self.spec.value[3], self.lanes), self.tile.value_vectors
        )
        statements = []
        for first, rows, times in split_axis(tile.valid, self.tile.query_rows):
            for begin, lengths, repeats in columns:
                step = partial(
                    self._accumulate_values,
                    tile=tile,
                    keys=(first_key, count),
                    queries=(first, rows),
                    columns=(begin, lengths),
                )
                statements.append(emit.loops({"c": repeats, "q": times}, step))
        return emit.sequence(statements)

    def _accumulate_values(
        self,
        c: Expr,
        run: Expr,
        *,
        tile: QueryTile,
        keys: tuple[Expr, Expr],
        queries: tuple[Expr, int],
        columns: tuple[Expr, tuple[int, ...]],
    ) -> Stmt:
        """Add the product PV to a register tile: some queries, and vectors of value features."""
        (first_key, count), (first, rows), (begin, lengths) = keys, queries, columns
        q, begin = first + run * rows, begin + c * sum(lengths)
        starts = [begin + sum(lengths[:at]) for at in range(len(lengths))]
        outputs = [
            (r, column, lanes, emit.buffer(f"mixed{r}_{at}", (lanes,)))
            for r in range(rows)
            for at, (column, lanes) in enumerate(zip(starts, lengths, strict=True))
        ]

        def scale(r: int, lanes: int) -> Expr:
            return emit.splat(emit.load(tile.scales, [q + r]), lanes)

        def initial_value(r: int, column: Expr, lanes: int) -> Expr:
            if self.blocks == 1:
                return emit.zero(lanes)
            return emit.load(tile.partial_outputs, [q + r, column], lanes) * scale(r, lanes)

        def key(k: Expr) -> Stmt:
            values = [
                self.value.load(tile.b, tile.key_head, first_key + k, column, lanes)
                for column, lanes in zip(starts, lengths, strict=True)
            ]
            statements = []
            for at, (r, _, lanes, into) in enumerate(outputs):
                power = emit.splat(emit.load(tile.scores, [k, q + r]), lanes)
                statements.append(assign(into, read(into) + power * values[at % len(lengths)]))
            return emit.sequence(statements)

        def last(r: int, column: Expr, lanes: int, total: Buffer) -> Stmt:
            if self.blocks == 1:
                return self._store_output(tile, q + r, column, read(total) * scale(r, lanes), lanes)
            return emit.store(tile.partial_outputs, [q + r, column], read(total), lanes)

        statements = [
            *(assign(register, initial_value(r, at, lanes)) for r, at, lanes, register in outputs),
            emit.loop("k", count, key),
            *(last(*register) for register in outputs),
        ]
        return emit.allocate([register for *_, register in outputs], emit.sequence(statements))

    def _store_outputs(self, tile: QueryTile) -> Stmt:
        """Write the sums of all blocks, divided by the sums of the exponentials."""

        def query(q: Expr) -> Stmt:
            scale = emit.load(tile.scales, [q])

            def column(d: Expr) -> Stmt:
                return self._store_output(
                    tile, q, d, emit.load(tile.partial_outputs, [q, d]) * scale, 1
                )

            return emit.loop("d", self.spec.value[3], column)

        return emit.loop("q", tile.valid, query)

    def _store_output(self, tile: QueryPlace, q: Expr, d: Expr, value: Expr, lanes: int) -> Stmt:
        indices = dict(zip("BHSD", (tile.b, tile.h, tile.first + q, d), strict=True))
        value = emit.rounding(STORAGE[self.spec.output_dtype], value)
        return emit.store(self.out, [indices[a] for a in self.spec.output_layout], value, lanes)

"""Attention of float32 by tile products of bfloat16 parts (AMX), as one TensorIR function.

A loop packs keys and values. The parallel loop after it is over heads and blocks of queries. Rows
of tiles are queries, so that exponentials become tiles of data without a transposition. Between
blocks of keys, sums are scaled to the new maximum (Dao et al. 2022, section 3.1). If a query, key
or value is an infinity, NaN or rounds to infinity, vectors compute all outputs again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Buffer, Expr, Stmt, assign, read
from chameleon_tvm._instructions.base import BFLOAT16_BITS
from chameleon_tvm._instructions.multiply_add import MultiplyAdd
from chameleon_tvm._instructions.tiles import TileProduct
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._operators.attention_specs import AttentionSpec
from chameleon_tvm._spaces.template import tile_packing
from chameleon_tvm._spaces.template.attention_loops import LOWEST, AttentionLoops
from chameleon_tvm._spaces.template.attention_parts import AttentionTile, QueryPlace, exponential
from chameleon_tvm._spaces.template.tile_blocks import Place, TileBlocks
from chameleon_tvm._spaces.template.tile_packing import (
    LANES,
    STEP,
    TILE,
    Magnitudes,
    Packer,
    words_of,
    write_words,
)

_PITCH_PADDING = LANES
"""Floats between the rows of scores, because rows a multiple of 4 KiB apart share a set of L1."""


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
    def queries(self) -> int:
        """Number of queries in an iteration of the parallel loop."""
        return self.query_tiles * LANES


@attrs.frozen(kw_only=True, eq=False)
class _Scratch:
    """The arrays of an iteration of the parallel loop.

    Attributes:
        queries: Packed queries, shape (feature steps, parts, tiles of queries) of tiles.
        scores: Scores of a block, shape (queries, pitch).
        powers: Packed exponentials, shape (steps, parts, tiles of queries) of tiles.
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


class AttentionByTiles(AttentionLoops):
    """Writes the TensorIR function of attention by tiles for one configuration.

    Args:
        tile: The tile with which vectors compute infinities and NaN.
        lanes: Number of lanes of these vectors.
    """

    def __init__(
        self,
        spec: AttentionSpec,
        tile: AttentionTile,
        lanes: int,
        *,
        block: AttentionBlock,
        product: TileProduct,
        parts: int,
    ) -> None:
        super().__init__(spec, tile, lanes, MultiplyAdd())
        self.block = block
        self.product = product
        self.parts = parts
        self.tiles = TileBlocks(product, block.rows, block.columns, parts)
        features, values = spec.query[3], spec.value[3]
        self.depths = [min(STEP, features - at) for at in range(0, features, STEP)]
        self.widths = [min(LANES, values - at) for at in range(0, values, LANES)]
        self.steps = math.ceil(self.keys / STEP)
        self.pitch = block.steps * STEP + _PITCH_PADDING
        self.key_blocks = math.ceil(self.steps / block.steps)
        batch, heads = spec.key[:2]
        count = batch * heads * self.steps * parts * TILE
        self.packed_keys = emit.buffer(
            "packed_keys", (2 * count * len(self.depths),), dtype=BFLOAT16_BITS
        )
        self.packed_values = emit.buffer(
            "packed_values", (count * len(self.widths),), dtype=BFLOAT16_BITS
        )
        self.panels = (batch * heads, self.steps)
        query_blocks = math.ceil(spec.query[2] / block.queries)
        self.tasks = (*spec.query[:2], query_blocks)
        self.noted = (
            Magnitudes("key_largest", math.prod(self.panels)),
            Magnitudes("query_largest", math.prod(self.tasks)),
        )

    def _body(self) -> Stmt:
        keys, queries = self.noted
        pack = emit.parallel(
            "panel",
            math.prod(self.panels),
            lambda at: keys.observed(at, lambda packer: self._pack_panel(packer, at), self.parts),
        )
        attend = emit.parallel(
            "task",
            math.prod(self.tasks),
            lambda at: queries.observed(at, lambda packer: self._attend(packer, at), self.parts),
        )
        repeat = tile_packing.repeat_unless_finite(self.noted, super()._body())
        scratch = [self.packed_keys, self.packed_values, keys.kept, queries.kept]
        return emit.allocate(scratch, emit.sequence([pack, attend, repeat]))

    # -- keys and values --------------------------------------------------------------------

    def _pack_panel(self, packer: Packer, index: Expr) -> Stmt:
        """Pack a step of keys and values of a head, the last of which may have fewer keys."""
        whole, rest = divmod(self.keys, STEP)
        head, step = emit.split(index, self.panels)
        b, h = emit.split(head, self.spec.key[:2])

        def pack(count: int) -> Stmt:
            return emit.sequence(
                [
                    *self._pack_keys(packer, (b, h, step), index, count),
                    *self._pack_values(packer, (b, h, step), index, count),
                ]
            )

        if not rest:
            return pack(STEP)
        return emit.branch([(step < whole, pack(STEP))], pack(rest)) if whole else pack(rest)

    def _pack_keys(
        self, packer: Packer, at: tuple[Expr, Expr, Expr], panel: Expr, count: int
    ) -> list[Stmt]:
        b, h, step = at
        _, key, _ = self.inputs

        def tile(number: Expr, columns: int, part: int) -> Stmt:
            first, begin = step * STEP + number * LANES, part * STEP
            starts = [self._key_place(panel * 2 + number, p, part) for p in range(self.parts)]

            def write(row: Expr, words: Sequence[Expr]) -> Stmt:
                return write_words(self.packed_keys, starts, row, words)

            if key.layout == "BHDS":
                return packer.weights(
                    lambda d, k, lanes: key.load(b, h, first + k, begin + d, lanes),
                    self.depths[part],
                    columns,
                    write,
                )
            return packer.transposed_weights(
                lambda k, d, lanes: key.load(b, h, first + k, begin + d, lanes),
                self.depths[part],
                columns,
                write,
            )

        if count == STEP:
            return [
                emit.loop("half", 2, lambda number, part=part: tile(number, LANES, part))
                for part in range(len(self.depths))
            ]
        return [
            tile(number, min(LANES, max(0, count - number * LANES)), part)
            for number in range(2)
            for part in range(len(self.depths))
        ]

    def _pack_values(
        self, packer: Packer, at: tuple[Expr, Expr, Expr], panel: Expr, count: int
    ) -> list[Stmt]:
        b, h, step = at
        value = self.inputs[2]

        def tile(number: int, columns: int) -> Stmt:
            starts = [self._value_place(panel, part, number) for part in range(self.parts)]
            return packer.weights(
                lambda k, d, lanes: value.load(b, h, step * STEP + k, number * LANES + d, lanes),
                count,
                columns,
                lambda row, words: write_words(self.packed_values, starts, row, words),
            )

        return [tile(number, columns) for number, columns in enumerate(self.widths)]

    def _key_place(self, tile: Expr, part: int, step: Expr) -> Expr:
        """The place of a tile of keys and a step of features; tiles count over all heads."""
        return emit.join((tile, part, step), (0, self.parts, len(self.depths))) * TILE

    def _value_place(self, step: Expr, part: int, tile: Expr) -> Expr:
        """The place of a step of keys and a tile of features; steps count over all heads."""
        return emit.join((step, part, tile), (0, self.parts, len(self.widths))) * TILE

    # -- queries ----------------------------------------------------------------------------

    def _attend(self, packer: Packer, index: Expr) -> Stmt:
        """Compute the outputs of a block of queries."""
        block, parts = self.block, self.parts
        b, h, t = emit.split(index, self.tasks)
        place = QueryPlace(
            b=b,
            h=h,
            key_head=tirx.floordiv(h, self.spec.group),
            first=emit.tile_start(t, block.queries, self.spec.query[2]),
        )
        tiles = parts * block.query_tiles * TILE
        scratch = _Scratch(
            queries=emit.buffer("queries", (len(self.depths) * tiles,), dtype=BFLOAT16_BITS),
            scores=emit.buffer("scores", (block.queries * self.pitch,)),
            powers=emit.buffer("powers", (block.steps * tiles,), dtype=BFLOAT16_BITS),
            outputs=emit.buffer("sums", (block.queries * len(self.widths) * LANES,)),
            maxima=emit.buffer("most", (block.queries * LANES,)),
            totals=emit.buffer("total", (block.queries * LANES,)),
        )
        count: Expr = self.key_blocks
        if self.spec.causal and self.key_blocks > 1:
            seen = tirx.min(place.first + block.queries, self.keys)
            size = block.steps * STEP
            count = tirx.floordiv(seen + size - 1, size)
        blocks = emit.loop("block", count, lambda at: self._key_block(place, scratch, at))
        body = emit.sequence(
            [
                self._pack_queries(packer, place, scratch),
                self._clear(scratch),
                self.product.around(self.tiles.registers, blocks),
                self._write(place, scratch),
            ]
        )
        return emit.allocate([*attrs.asdict(scratch, recurse=False).values()], body)

    def _pack_queries(self, packer: Packer, place: QueryPlace, scratch: _Scratch) -> Stmt:
        scale = self.spec.scale

        def tile(at: Expr, part: int) -> Stmt:
            def scaled(row: Expr, d: Expr, lanes: int) -> Expr:
                query = (place.b, place.h, place.first + at * LANES + row, part * STEP + d)
                return self.query.load(*query, lanes) * emit.constant(scale, lanes)

            starts = [self._row_place(part, p, at) for p in range(self.parts)]
            return packer.data(
                scaled,
                self.depths[part],
                lambda row, words: write_words(scratch.queries, starts, row, words),
            )

        return emit.sequence(
            [
                emit.loop("tile", self.block.query_tiles, lambda at, part=part: tile(at, part))
                for part in range(len(self.depths))
            ]
        )

    def _row_place(self, step: Expr, part: int, tile: Expr) -> Expr:
        """The place of a step and a tile of queries, in packed queries or exponentials."""
        return emit.join((step, part, tile), (0, self.parts, self.block.query_tiles)) * TILE

    def _clear(self, scratch: _Scratch) -> Stmt:
        def vector(at: Expr) -> Stmt:
            lowest = emit.constant(LOWEST, LANES)
            return emit.sequence(
                [
                    emit.store(scratch.maxima, [at * LANES], lowest, LANES),
                    emit.store(scratch.totals, [at * LANES], emit.zero(LANES), LANES),
                ]
            )

        return emit.loop("row", self.block.queries, vector)

    def _key_block(self, place: QueryPlace, scratch: _Scratch, number: Expr) -> Stmt:
        """Add a block of keys and values to the sums."""
        begin = number * self.block.steps
        steps: Expr = self.steps
        if self.key_blocks > 1:
            steps = tirx.min(self.block.steps, self.steps - begin)
        if self.spec.causal:
            seen = place.first + self.block.queries - begin * STEP
            steps = tirx.min(steps, tirx.floordiv(seen + STEP - 1, STEP))
        first_step = emit.join((place.b, place.key_head), (0, self.spec.key[1])) * self.steps
        first_step = first_step + begin
        return emit.sequence(
            [
                self._multiply_keys(scratch, first_step, steps),
                self._softmax(place, scratch, begin, steps),
                self._multiply_values(scratch, number, first_step, steps),
            ]
        )

    def _multiply_keys(self, scratch: _Scratch, first_step: Expr, steps: Expr) -> Stmt:
        """Multiply queries and keys."""
        block = self.block

        def tile(rows: Expr, columns: Expr) -> Stmt:
            key, query = columns * block.columns, rows * block.rows

            def multiply(step: Expr) -> Stmt:
                return self.tiles.multiply(
                    (scratch.queries, lambda p, at: self._row_place(step, p, query + at)),
                    (
                        self.packed_keys,
                        lambda p, at: self._key_place(first_step * 2 + key + at, p, step),
                    ),
                    block.rows,
                    block.columns,
                )

            def place(r: int, c: int) -> Expr:
                return (query + r) * LANES * self.pitch + (key + c) * LANES

            products = emit.loop("step", len(self.depths), multiply)
            return self._sums(scratch.scores, self.pitch, place, block.columns, products)

        columns = steps * 2 if block.columns == 1 else steps
        rows = block.query_tiles // block.rows
        # The keys of a tile stay in L1 for all queries.
        return emit.loops({"columns": columns, "rows": rows}, lambda c, r: tile(r, c))

    def _multiply_values(self, scratch: _Scratch, number: Expr, first_step: Expr, steps: Expr) -> Stmt:
        """Multiply exponentials and values."""
        block, across = self.block, self.block.columns
        pitch = len(self.widths) * LANES

        def tile(rows: Expr, first: Expr, columns: int) -> Stmt:
            query = rows * block.rows

            def multiply(step: Expr) -> Stmt:
                return self.tiles.multiply(
                    (scratch.powers, lambda p, at: self._row_place(step, p, query + at)),
                    (
                        self.packed_values,
                        lambda p, at: self._value_place(first_step + step, p, first + at),
                    ),
                    block.rows,
                    columns,
                )

            def place(r: int, c: int) -> Expr:
                return (query + r) * LANES * pitch + (first + c) * LANES

            products = emit.loop("step", steps, multiply)
            return self._sums(scratch.outputs, pitch, place, columns, products, number)

        whole, rest = divmod(len(self.widths), across)
        rows = block.query_tiles // block.rows
        statements = []
        if whole:
            extents = {"columns": whole, "rows": rows}
            statements.append(emit.loops(extents, lambda c, r: tile(r, c * across, across)))
        if rest:
            statements.append(emit.loop("rows", rows, lambda r: tile(r, whole * across, rest)))
        return emit.sequence(statements)

    def _sums(
        self,
        target: Buffer,
        pitch: int,
        place: Place,
        columns: int,
        products: Stmt,
        number: Expr = 0,
    ) -> Stmt:
        """Write sums of products to an array, added to those there unless the block is the first."""
        registers = [
            (self.tiles.sums(r, c), place(r, c))
            for r in range(self.block.rows)
            for c in range(columns)
        ]
        zeros = emit.sequence([self.product.zero(sums) for sums, _ in registers])
        begin = zeros
        if not isinstance(number, int):
            loads = [self.product.load(sums, target, at, pitch) for sums, at in registers]
            begin = emit.branch([(number == 0, zeros)], emit.sequence(loads))
        stores = [self.product.store(sums, target, at, pitch) for sums, at in registers]
        return emit.sequence([begin, products, *stores])

    # -- exponentials -----------------------------------------------------------------------

    def _softmax(self, place: QueryPlace, scratch: _Scratch, begin: Expr, steps: Expr) -> Stmt:
        """Replace scores by packed exponentials, and scale earlier sums to the new maximum."""
        rest = self.keys % STEP
        whole = steps
        ends: Expr | None = None
        if rest and isinstance(steps, int):
            whole = steps - 1
        elif rest:
            ends = begin + steps == self.steps
            whole = steps - tirx.Cast("int32", ends)

        def for_each_step(body: Callable[[Expr, int], Stmt]) -> list[Stmt]:
            statements = [] if whole == 0 else [emit.loop("step", whole, lambda at: body(at, STEP))]
            if rest:
                last = body(whole, rest)
                statements.append(last if ends is None else tirx.IfThenElse(ends, last, None))
            return statements

        def row(tile: Expr, at: Expr) -> Stmt:
            q = tile * LANES + at
            most, total, factor = emit.registers(3, LANES, name="row")
            maxima, totals = (
                emit.load(memory, [q * LANES], LANES) for memory in (scratch.maxima, scratch.totals)
            )

            def compare(step: Expr, count: int) -> Stmt:
                return self._compare(place, scratch, most, q, (begin, step), count)

            def power(step: Expr, count: int) -> Stmt:
                return self._powers(scratch, (most, total), (tile, at), step, count)

            statements = [
                assign(most, maxima),
                *for_each_step(compare),
                *_in_all_lanes(most, tirx.max),
                assign(factor, exponential(maxima - read(most))),
                emit.store(scratch.maxima, [q * LANES], read(most), LANES),
                assign(total, totals * read(factor)),
                *([] if self.key_blocks == 1 else [self._scale(scratch, q, read(factor))]),
                *for_each_step(power),
                emit.store(scratch.totals, [q * LANES], read(total), LANES),
            ]
            return emit.allocate([most, total, factor], emit.sequence(statements))

        return emit.loops({"tile": self.block.query_tiles, "row": LANES}, row)

    def _compare(
        self,
        place: QueryPlace,
        scratch: _Scratch,
        most: Buffer,
        q: Expr,
        steps: tuple[Expr, Expr],
        count: int,
    ) -> Stmt:
        """Compare a step's scores with a maximum, and apply the mask to them."""
        begin, step = steps
        statements = []
        for first in range(0, count, LANES):
            valid = min(LANES, count - first)
            index = [q * self.pitch + step * STEP + first]
            key = (begin + step) * STEP + first
            score, before, buffers = emit.load(scratch.scores, index, LANES), [], []
            masked = self.mask is not None or self.spec.causal
            if self.mask is not None:
                added, before, buffers = self._mask_of(place, q, key, valid)
                score = score + added
            if self.spec.causal:
                keys = tirx.Ramp(key, tirx.IntImm("int32", 1), LANES)
                seen = keys <= emit.splat(place.first + q, LANES)
                score = tirx.Select(seen, score, emit.constant(LOWEST, LANES))
            if masked:
                (register,) = emit.registers(1, LANES, name="score")
                before += [
                    assign(register, score),
                    emit.store(scratch.scores, index, read(register), LANES),
                ]
                buffers += [register]
                score = read(register)
            score = _only(valid, score, LOWEST)
            body = emit.sequence([*before, assign(most, tirx.max(read(most), score))])
            statements.append(emit.allocate(buffers, body) if buffers else body)
        return emit.sequence(statements)

    def _mask_of(
        self, place: QueryPlace, q: Expr, key: Expr, valid: int
    ) -> tuple[Expr, list[Stmt], list[Buffer]]:
        """The numbers that the mask adds to a vector of scores."""
        query = place.first + q
        if self.spec.mask[3] == 1:
            return emit.splat(self._mask_element(place, query, key), LANES), [], []

        def elements(row: Expr, first: Expr, lanes: int) -> Expr:
            return self._mask_element(place, row, key + first, lanes)

        return tile_packing.read_vector(elements, query, 0, valid)

    def _powers(
        self,
        scratch: _Scratch,
        registers: tuple[Buffer, Buffer],
        at: tuple[Expr, Expr],
        step: Expr,
        count: int,
    ) -> Stmt:
        """Pack the exponentials of a step's scores, and add them up."""
        most, total = registers
        tile, row = at
        powers = emit.registers(math.ceil(count / LANES), LANES, name="power")
        statements = []
        for number, power in enumerate(powers):
            index = [(tile * LANES + row) * self.pitch + step * STEP + number * LANES]
            value = exponential(emit.load(scratch.scores, index, LANES) - read(most))
            value = _only(min(LANES, count - number * LANES), value, 0.0)
            statements += [assign(power, value), assign(total, read(total) + read(power))]
        starts = [self._row_place(step, part, tile) for part in range(self.parts)]
        words = words_of([read(power) for power in powers], self.parts)
        statements.append(write_words(scratch.powers, starts, row, words))
        return emit.allocate([*powers], emit.sequence(statements))

    def _scale(self, scratch: _Scratch, q: Expr, factor: Expr) -> Stmt:
        """Scale the sums of values of a query, which are arbitrary before the first block."""
        width = len(self.widths) * LANES

        def vector(at: Expr) -> Stmt:
            index = [q * width + at * LANES]
            value = emit.load(scratch.outputs, index, LANES) * factor
            return emit.store(scratch.outputs, index, value, LANES)

        return emit.loop("vector", len(self.widths), vector)

    def _write(self, place: QueryPlace, scratch: _Scratch) -> Stmt:
        """Write the sums of all blocks, divided by the sums of the exponentials."""
        width = len(self.widths) * LANES

        def row(q: Expr) -> Stmt:
            (scale,) = emit.registers(1, LANES, name="scale")
            unit = emit.constant(1.0, LANES)
            # The largest score contributes 1. If all keys are hidden, the outputs stay 0.
            least = tirx.Select(read(scale) < unit, unit, read(scale))
            statements = [
                assign(scale, emit.load(scratch.totals, [q * LANES], LANES)),
                *_in_all_lanes(scale, lambda one, other: one + other),
                assign(scale, unit / least),
            ]

            def column(first: Expr, lanes: int) -> Stmt:
                sums = emit.load(scratch.outputs, [q * width + first], lanes)
                factor = emit.load(scale, [0], lanes)
                return self._store_output(place, q, first, sums * factor, lanes)

            whole, rest = divmod(self.spec.value[3], LANES)
            if whole:
                statements.append(emit.loop("v", whole, lambda at: column(at * LANES, LANES)))
            if rest:
                statements.append(emit.loop("d", rest, lambda at: column(whole * LANES + at, 1)))
            return emit.allocate(scale, emit.sequence(statements))

        return emit.loop("q", self.block.queries, row)


def _in_all_lanes(register: Buffer, combine: Callable[[Expr, Expr], Expr]) -> list[Stmt]:
    """Statements that put the combination of all lanes of a register into each lane."""
    statements, distance = [], LANES // 2
    while distance:
        order = [lane ^ distance for lane in range(LANES)]
        other = tirx.Shuffle([read(register)], order)
        statements.append(assign(register, combine(read(register), other)))
        distance //= 2
    return statements


def _only(valid: int, vector: Expr, other: float) -> Expr:
    """The first lanes of a vector, and a constant in the others."""
    if valid == LANES:
        return vector
    lanes = tirx.Ramp(tirx.IntImm("int32", 0), tirx.IntImm("int32", 1), LANES)
    inside = lanes < emit.integer_like(valid, vector)
    return tirx.Select(inside, vector, emit.constant(other, LANES))

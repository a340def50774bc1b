"""Attention by tiles: packed inputs, the exponentials of rows of scores, and the outputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Buffer, Expr, Stmt, assign, read
from chameleon_tvm._instructions.base import BFLOAT16_BITS
from chameleon_tvm._instructions.multiply_add import MultiplyAdd
from chameleon_tvm._instructions.tiles import TileProduct
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._open_axes import QUERIES, extent_of
from chameleon_tvm._operators.attention_specs import AttentionSpec
from chameleon_tvm._spaces.template.attention_loops import LOWEST, AttentionLoops
from chameleon_tvm._spaces.template.attention_parts import (
    LOG2_E,
    AttentionTile,
    QueryPlace,
    exponential,
    power_of_two,
)
from chameleon_tvm._spaces.template.attention_tile_parts import (
    AttentionBlock,
    Item,
    Scratch,
    hidden,
    in_all_lanes,
)
from chameleon_tvm._spaces.template.tile_blocks import TileBlocks
from chameleon_tvm._spaces.template.tile_packing import (
    LANES,
    STEP,
    TILE,
    Magnitudes,
    Packer,
    Words,
    read_vector,
    words_of,
    write_words,
)

_PITCH_PADDING = LANES
"""Floats between the rows of scores, because rows a multiple of 4 KiB apart share a set of L1."""


class AttentionRows(AttentionLoops):
    """Packs the inputs of attention by tiles, and computes the exponentials of rows of queries.

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
        self.called_steps = emit.divided(self.called_keys, STEP)
        self.panels = (self.batch * heads, self.called_steps)
        query_blocks = math.ceil(spec.query[2] / block.queries)
        called_blocks = emit.divided(extent_of(QUERIES, spec.query[2]), block.queries)
        self.tasks = (self.batch, spec.query[1], called_blocks)
        self.noted = (
            Magnitudes("key_largest", batch * heads * self.steps, math.prod(self.panels)),
            Magnitudes(
                "query_largest", math.prod(spec.query[:2]) * query_blocks, math.prod(self.tasks)
            ),
        )

    def _pack_panel(self, packer: Packer, index: Expr) -> Stmt:
        """Pack a step of keys and values of a head."""
        head, step = emit.split(index, self.panels)
        b, h = emit.split(head, self.spec.key[:2])
        rows = self.inputs[1].layout != "BHDS"
        pack_keys = self._pack_rows_of_keys if rows else self._pack_columns_of_keys
        place = (b, h, step)
        return emit.sequence(
            [pack_keys(packer, place, index), self._pack_values(packer, place, index)]
        )

    def _token(self, number: Expr) -> Expr:
        """The token of a number. After the last token, it repeats, with exponentials of 0."""
        keys = self.called_keys
        whole = isinstance(keys, int) and keys % STEP == 0
        return number if whole else tirx.min(number, keys - 1)

    def _pack_rows_of_keys(self, packer: Packer, at: tuple[Expr, Expr, Expr], panel: Expr) -> Stmt:
        """Pack a step of keys whose features are neighbours in memory."""
        b, h, step = at
        key = self.inputs[1]

        def tile(half: Expr, part: Expr, depth: int) -> Stmt:
            def line(k: Expr, d: Expr, lanes: int) -> Expr:
                token = self._token(step * STEP + half * LANES + k)
                return key.load(b, h, token, part * STEP + d, lanes)

            starts = [self._key_place(panel * 2 + half, p, part) for p in range(self.parts)]
            write = partial(write_words, self.packed_keys, starts)
            return packer.transposed_weights(line, depth, LANES, write)

        def half(number: Expr) -> Stmt:
            return emit.pieces("part", self.spec.query[3], STEP, partial(tile, number))

        return emit.loop("half", 2, half)

    def _pack_columns_of_keys(
        self, packer: Packer, at: tuple[Expr, Expr, Expr], panel: Expr
    ) -> Stmt:
        """Pack a step of keys whose tokens are neighbours in memory; the last may have fewer."""
        b, h, step = at
        key = self.inputs[1]
        whole, rest = divmod(self.keys, STEP)

        def tile(half: int, columns: int, part: Expr, depth: int) -> Stmt:
            def line(d: Expr, k: Expr, lanes: int) -> Expr:
                return key.load(b, h, step * STEP + half * LANES + k, part * STEP + d, lanes)

            starts = [self._key_place(panel * 2 + half, p, part) for p in range(self.parts)]
            write = partial(write_words, self.packed_keys, starts)
            return packer.weights(line, depth, columns, write)

        def pack(count: int) -> Stmt:
            columns = [min(LANES, max(0, count - half * LANES)) for half in range(2)]
            return emit.sequence(
                [
                    emit.pieces("part", self.spec.query[3], STEP, partial(tile, half, valid))
                    for half, valid in enumerate(columns)
                ]
            )

        if not rest:
            return pack(STEP)
        return emit.branch([(step < whole, pack(STEP))], pack(rest)) if whole else pack(rest)

    def _pack_values(self, packer: Packer, at: tuple[Expr, Expr, Expr], panel: Expr) -> Stmt:
        b, h, step = at
        value = self.inputs[2]

        def tile(number: Expr, columns: int) -> Stmt:
            def line(k: Expr, d: Expr, lanes: int) -> Expr:
                return value.load(b, h, self._token(step * STEP + k), number * LANES + d, lanes)

            starts = [self._value_place(panel, part, number) for part in range(self.parts)]
            write = partial(write_words, self.packed_values, starts)
            return packer.weights(line, STEP, columns, write)

        return emit.pieces("column", self.spec.value[3], LANES, tile)

    def _key_place(self, tile: Expr, part: int, step: Expr) -> Expr:
        """The place of a tile of keys and a step of features; tiles count over all heads."""
        return emit.join((tile, part, step), (0, self.parts, len(self.depths))) * TILE

    def _value_place(self, step: Expr, part: int, tile: Expr) -> Expr:
        """The place of a step of keys and a tile of features; steps count over all heads."""
        return emit.join((step, part, tile), (0, self.parts, len(self.widths))) * TILE

    def _pack_queries(self, packer: Packer, place: QueryPlace, scratch: Scratch) -> Stmt:
        scale = self.spec.scale * (1.0 if self.mask is not None else LOG2_E)
        queries = extent_of(QUERIES, self.spec.query[2])

        def tile(part: Expr, depth: int) -> Stmt:
            return emit.loop("tile", self.block.query_tiles, partial(rows, part, depth))

        def rows(part: Expr, depth: int, at: Expr) -> Stmt:
            def scaled(row: Expr, d: Expr, lanes: int) -> Expr:
                token = place.first + at * LANES + row
                if not isinstance(queries, int):
                    # Memory after a call's queries may hold infinities or NaN.
                    token = tirx.min(token, queries - 1)
                query = (place.b, place.h, token, part * STEP + d)
                return self.query.load(*query, lanes) * emit.constant(scale, lanes)

            starts = [self._query_place(part, p, at) for p in range(self.parts)]
            return packer.data(scaled, depth, partial(write_words, scratch.queries, starts))

        return emit.pieces("part", self.spec.query[3], STEP, tile)

    def _query_place(self, step: Expr, part: int, tile: Expr) -> Expr:
        """The place of a step of features and a tile of queries."""
        return emit.join((step, part, tile), (0, self.parts, self.block.query_tiles)) * TILE

    def _power_place(self, item: Item, step: Expr, part: int, tile: Expr) -> Expr:
        """The place of a step of keys and a tile of queries in packed exponentials."""
        block = self.block
        digits = (item.slot, step, part, tile)
        return emit.join(digits, (0, block.steps, self.parts, block.rows)) * TILE

    # -- exponentials -----------------------------------------------------------------------

    def _clear(self, scratch: Scratch) -> Stmt:
        def vector(at: Expr) -> Stmt:
            lowest = emit.constant(LOWEST, LANES)
            return emit.sequence(
                [
                    emit.store(scratch.maxima, [at * LANES], lowest, LANES),
                    emit.store(scratch.totals, [at * LANES], emit.zero(LANES), LANES),
                ]
            )

        return emit.loop("row", self.block.queries, vector)

    def _row_of(self, place: QueryPlace, scratch: Scratch, item: Item) -> Callable[[Expr], Stmt]:
        """Replaces scores by packed exponentials, and scales earlier sums to the new maximum.

        The result writes the statement for a query of an item's group.
        """
        steps, begin = item.steps, item.begin
        rest = self.keys % STEP
        # Code of its own for the last step saves a vector of exponentials, or reads no mask after
        # the last key. It takes time to compile.
        apart = rest and (rest <= LANES or (self.mask is not None and self.spec.mask[3] != 1))

        def if_last(statement: Stmt) -> Stmt:
            """Run a statement in the last block, which alone has a step with fewer keys."""
            if self.key_blocks == 1 and not self.spec.causal and emit.is_number(steps, self.steps):
                return statement
            return emit.when(begin + steps == self.steps, statement)

        def for_each_step(body: Callable[[Expr, int], Stmt]) -> list[Stmt]:
            if not apart:
                return [emit.loop("step", steps, lambda step: body(step, STEP))]
            whole = tirx.min(steps, self.steps - 1 - begin)
            loop = emit.loop("step", whole, lambda step: body(step, STEP))
            return [loop, if_last(body(steps - 1, rest))]

        def row(at: Expr) -> Stmt:
            q = item.query_tile * LANES + at
            scores = (item.slot * self.block.group_queries + at) * self.pitch
            # Two registers for maxima halve the chain of instructions that wait for each other.
            most, second, total, factor = emit.registers(4, LANES, name="row")
            maxima, totals = (
                emit.load(memory, [q * LANES], LANES) for memory in (scratch.maxima, scratch.totals)
            )

            def compare(step: Expr, count: int) -> Stmt:
                index, key = scores + step * STEP, (begin + step) * STEP
                return self._compare(scratch, (most, second), (index, key), (place, q), count)

            def power(step: Expr, count: int) -> Stmt:
                starts = [self._power_place(item, step, part, 0) for part in range(self.parts)]
                write = partial(write_words, scratch.powers, starts, at)
                index = scores + step * STEP
                return self._powers(scratch, (most, total), index, count, write)

            hide = [if_last(self._hide(scratch, scores + (steps - 1) * STEP, rest))] if rest else []
            statements = [
                assign(most, maxima),
                assign(second, maxima),
                *hide,
                *for_each_step(compare),
                assign(most, tirx.max(read(most), read(second))),
                *in_all_lanes(most, tirx.max),
                assign(factor, self._power(maxima - read(most))),
                emit.store(scratch.maxima, [q * LANES], read(most), LANES),
                assign(total, totals * read(factor)),
                *([] if self.key_blocks == 1 else [self._scale(scratch, q, read(factor))]),
                *for_each_step(power),
                emit.store(scratch.totals, [q * LANES], read(total), LANES),
            ]
            return emit.allocate([most, second, total, factor], emit.sequence(statements))

        return row

    def _hide(self, scratch: Scratch, begin: Expr, valid: int) -> Stmt:
        """Write minus infinity to the scores of the last vector of a step, after its keys."""
        first, valid = divmod(valid, LANES)
        if not valid:
            return emit.sequence([])
        index = [begin + first * LANES]
        scores = hidden(emit.load(scratch.scores, index, LANES), valid)
        return emit.store(scratch.scores, index, scores, LANES)

    def _compare(
        self,
        scratch: Scratch,
        most: tuple[Buffer, Buffer],
        begin: tuple[Expr, Expr],
        query: tuple[QueryPlace, Expr],
        count: int,
    ) -> Stmt:
        """Compare a step's scores with two maxima in turn, and apply the mask to them."""
        place, q = query
        statements = []
        for first in range(0, count, LANES):
            valid = min(LANES, count - first)
            start, key = (number + first for number in begin)
            index = [start]
            score: Expr = emit.load(scratch.scores, index, LANES)
            before: list[Stmt] = []
            buffers: list[Buffer] = []
            is_open = not isinstance(self.called_keys, int)
            masked = self.mask is not None or self.spec.causal or is_open
            if self.mask is not None:
                added, before, buffers = self._mask_of(place, q, key, valid)
                score = score + added
            if self.spec.causal:
                keys = tirx.Ramp(key, tirx.IntImm("int32", 1), LANES)
                seen = keys <= emit.splat(place.first + q, LANES)
                score = tirx.Select(seen, score, emit.constant(LOWEST, LANES))
            elif is_open:
                score = hidden(score, self.called_keys - key)
            if masked:
                (register,) = emit.registers(1, LANES, name="score")
                before += [
                    assign(register, score),
                    emit.store(scratch.scores, index, read(register), LANES),
                ]
                buffers += [register]
                score = read(register)
            maximum = most[first // LANES]
            body = emit.sequence([*before, assign(maximum, tirx.max(read(maximum), score))])
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

        return read_vector(elements, query, 0, valid)

    def _powers(
        self,
        scratch: Scratch,
        registers: tuple[Buffer, Buffer],
        begin: Expr,
        count: int,
        write: Callable[[Words], Stmt],
    ) -> Stmt:
        """Pack the exponentials of a step's scores, and add them up."""
        most, total = registers
        powers = emit.registers(math.ceil(count / LANES), LANES, name="power")
        statements = []
        for number, power in enumerate(powers):
            score = emit.load(scratch.scores, [begin + number * LANES], LANES)
            value = self._power(score - read(most))
            statements += [assign(power, value), assign(total, read(total) + read(power))]
        words = words_of([read(power) for power in powers], self.parts)
        return emit.allocate([*powers], emit.sequence([*statements, write(words)]))

    def _power(self, score: Expr) -> Expr:
        """The exponential of a score. Scores are in base 2 unless a mask is added to them."""
        return power_of_two(score) if self.mask is None else exponential(score)

    def _scale(self, scratch: Scratch, q: Expr, factor: Expr) -> Stmt:
        """Scale the sums of values of a query, which are arbitrary before the first block."""
        width = len(self.widths) * LANES

        def vector(at: Expr) -> Stmt:
            index = [q * width + at * LANES]
            value = emit.load(scratch.outputs, index, LANES) * factor
            return emit.store(scratch.outputs, index, value, LANES)

        return emit.loop("vector", len(self.widths), vector)

    def _write(self, place: QueryPlace, scratch: Scratch) -> Stmt:
        """Write the sums of all blocks, divided by the sums of the exponentials."""
        width = len(self.widths) * LANES

        def row(q: Expr) -> Stmt:
            (scale,) = emit.registers(1, LANES, name="scale")
            unit = emit.constant(1.0, LANES)
            # The largest score contributes 1. If all keys are hidden, the outputs stay 0.
            least = tirx.Select(read(scale) < unit, unit, read(scale))
            statements = [
                assign(scale, emit.load(scratch.totals, [q * LANES], LANES)),
                *in_all_lanes(scale, lambda one, other: one + other),
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

"""Attention of float32 by tile products of bfloat16 parts (AMX), as one TensorIR function.

A loop packs keys and values. The parallel loop after it is over heads and blocks of queries. Rows
of tiles are queries, so that exponentials become tiles of data without a transposition. Between
blocks of keys, sums are scaled to the new maximum (Dao et al. 2022, section 3.1). If a query, key
or value is an infinity, NaN or rounds to infinity, vectors compute all outputs again.
"""

from __future__ import annotations

import math

import attrs

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Buffer, Expr, Stmt
from chameleon_tvm._instructions.base import BFLOAT16_BITS
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._spaces.template import tile_packing
from chameleon_tvm._spaces.template.attention_parts import QueryPlace
from chameleon_tvm._spaces.template.attention_tile_parts import (
    Between,
    Item,
    Scratch,
    guarded,
    with_rows,
)
from chameleon_tvm._spaces.template.attention_tile_rows import AttentionRows
from chameleon_tvm._spaces.template.tile_blocks import Place
from chameleon_tvm._spaces.template.tile_packing import LANES, STEP, TILE, Packer


class AttentionByTiles(AttentionRows):
    """Writes the TensorIR function of attention by tiles for one configuration."""

    def _body(self) -> Stmt:
        keys, queries = self.noted
        pack = keys.loop("panel", self._pack_panel, self.parts)
        attend = queries.loop("task", self._attend, self.parts)
        repeat = tile_packing.repeat_unless_finite(self.noted, super()._body())
        scratch = [self.packed_keys, self.packed_values, keys.kept, queries.kept]
        return emit.allocate(scratch, emit.sequence([pack, attend, repeat]))

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
        slots = min(2, block.groups)
        packed = parts * TILE
        scratch = Scratch(
            queries=emit.buffer(
                "queries", (len(self.depths) * block.query_tiles * packed,), dtype=BFLOAT16_BITS
            ),
            scores=emit.buffer("scores", (slots * block.group_queries * self.pitch,)),
            powers=emit.buffer(
                "powers", (slots * block.steps * block.rows * packed,), dtype=BFLOAT16_BITS
            ),
            outputs=emit.buffer("sums", (block.queries * len(self.widths) * LANES,)),
            maxima=emit.buffer("most", (block.queries * LANES,)),
            totals=emit.buffer("total", (block.queries * LANES,)),
        )
        body = emit.sequence(
            [
                self._pack_queries(packer, place, scratch),
                self._clear(scratch),
                self.product.around(self.tiles.registers, self._items(place, scratch)),
                self._write(place, scratch),
            ]
        )
        return emit.allocate([*attrs.asdict(scratch, recurse=False).values()], body)

    def _items(self, place: QueryPlace, scratch: Scratch) -> Stmt:
        """Add all blocks of keys and values to the sums of all groups of queries.

        If there are several groups, tile products come between the exponentials of an item: those
        of the next and of the previous item. The CPU computes both at the same time.
        """
        block = self.block
        blocks: Expr = self.key_blocks
        if blocks > 1:
            keys = self.called_keys
            if self.spec.causal:
                keys = tirx.min(place.first + block.queries, keys)
            blocks = emit.divided(keys, block.steps * STEP)
        if block.groups == 1:

            def whole(number: Expr) -> Stmt:
                item = self._item(place, number)
                rows = emit.loop("row", block.group_queries, self._row_of(place, scratch, item))
                keys = self._multiply_keys(scratch, item)
                return emit.sequence([keys, rows, self._multiply_values(scratch, item)])

            return emit.loop("block", blocks, whole)
        count = blocks * block.groups
        half = block.group_queries // 2

        def overlapped(number: Expr) -> Stmt:
            row = self._row_of(place, scratch, self._item(place, number))
            following = self._item(place, tirx.min(number + 1, count - 1))
            previous = self._item(place, tirx.max(number - 1, 0))
            keys = Between(first=0, rows=half, row=row, guard=number + 1 < count)
            values = Between(first=half, rows=half, row=row, guard=number > 0)
            return emit.sequence(
                [
                    self._multiply_keys(scratch, following, keys),
                    self._multiply_values(scratch, previous, values),
                ]
            )

        return emit.sequence(
            [
                self._multiply_keys(scratch, self._item(place, 0)),
                emit.loop("item", count, overlapped),
                self._multiply_values(scratch, self._item(place, count - 1)),
            ]
        )

    def _item(self, place: QueryPlace, number: Expr) -> Item:
        """The item of a number, in the order of blocks of keys, then groups of queries."""
        block = self.block
        groups = block.groups
        key_block, group, slot = number, 0, 0
        if groups > 1:
            key_block, group = tirx.floordiv(number, groups), tirx.floormod(number, groups)
            slot = tirx.floormod(number, 2)
        if self.key_blocks == 1:
            key_block = 0
        begin = key_block * block.steps
        steps = self.called_steps
        if self.key_blocks > 1:
            steps = tirx.min(block.steps, steps - begin)
        if self.spec.causal:
            seen = place.first + block.queries - begin * STEP
            steps = tirx.min(steps, tirx.floordiv(seen + STEP - 1, STEP))
        head = emit.join((place.b, place.key_head), (0, self.spec.key[1]))
        return Item(
            key_block=key_block,
            begin=begin,
            steps=steps,
            packed=head * self.called_steps + begin,
            query_tile=group * block.rows,
            slot=slot,
        )

    def _multiply_keys(self, scratch: Scratch, item: Item, between: Between | None = None) -> Stmt:
        """Multiply queries and keys."""
        block, depths = self.block, len(self.depths)
        columns = item.steps * 2 if block.columns == 1 else item.steps
        first_row = item.slot * block.group_queries

        def tile(column: Expr) -> Stmt:
            key = column * block.columns

            def multiply(step: Expr) -> Stmt:
                products = self.tiles.multiply(
                    (
                        scratch.queries,
                        lambda p, at: self._query_place(step, p, item.query_tile + at),
                    ),
                    (
                        self.packed_keys,
                        lambda p, at: self._key_place(item.packed * 2 + key + at, p, step),
                    ),
                    block.rows,
                    block.columns,
                )
                return with_rows(between, products, column * depths + step, columns * depths)

            def place(r: int, c: int) -> Expr:
                return (first_row + r * LANES) * self.pitch + (key + c) * LANES

            products = emit.loop("step", depths, multiply)
            target = (scratch.scores, self.pitch, place)
            return self._sums(target, block.columns, products, between)

        return emit.loop("column", columns, tile)

    def _multiply_values(
        self, scratch: Scratch, item: Item, between: Between | None = None
    ) -> Stmt:
        """Multiply exponentials and values."""
        block, across = self.block, self.block.columns
        pitch = len(self.widths) * LANES
        groups = math.ceil(len(self.widths) / across)

        def tile(group: Expr, columns: int) -> Stmt:
            first = group * across

            def multiply(step: Expr) -> Stmt:
                products = self.tiles.multiply(
                    (scratch.powers, lambda p, at: self._power_place(item, step, p, at)),
                    (
                        self.packed_values,
                        lambda p, at: self._value_place(item.packed + step, p, first + at),
                    ),
                    block.rows,
                    columns,
                )
                number = group * item.steps + step
                return with_rows(between, products, number, item.steps * groups)

            def place(r: int, c: int) -> Expr:
                return (item.query_tile + r) * LANES * pitch + (first + c) * LANES

            products = emit.loop("step", item.steps, multiply)
            target = (scratch.outputs, pitch, place)
            return self._sums(target, columns, products, between, item.key_block)

        return emit.pieces("column", len(self.widths), across, tile)

    def _sums(
        self,
        target: tuple[Buffer, int, Place],
        columns: int,
        products: Stmt,
        between: Between | None,
        key_block: Expr = 0,
    ) -> Stmt:
        """Write sums of products to an array, added to those there after the first block."""
        buffer, pitch, place = target
        registers = [
            (self.tiles.sums(r, c), place(r, c))
            for r in range(self.block.rows)
            for c in range(columns)
        ]
        begin = emit.sequence([self.product.zero(sums) for sums, _ in registers])
        if not isinstance(key_block, int):
            loads = [self.product.load(sums, buffer, at, pitch) for sums, at in registers]
            begin = emit.branch([(key_block == 0, begin)], emit.sequence(loads))
        stores = [self.product.store(sums, buffer, at, pitch) for sums, at in registers]
        return emit.sequence(
            [guarded(between, begin), products, guarded(between, emit.sequence(stores))]
        )

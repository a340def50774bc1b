"""Queries, keys and values of attention as packed tiles of bfloat16 parts."""

from __future__ import annotations

import math
from functools import partial

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Expr, Stmt
from chameleon_tvm._instructions.base import BFLOAT16_BITS
from chameleon_tvm._instructions.multiply_add import MultiplyAdd
from chameleon_tvm._instructions.tiles import TileProduct
from chameleon_tvm._operators.attention_specs import AttentionSpec
from chameleon_tvm._spaces.template.attention_loops import AttentionLoops
from chameleon_tvm._spaces.template.attention_parts import LOG2_E, AttentionTile, QueryPlace
from chameleon_tvm._spaces.template.attention_tile_parts import AttentionBlock, Item, Scratch
from chameleon_tvm._spaces.template.tile_blocks import TileBlocks
from chameleon_tvm._spaces.template.tile_packing import (
    LANES,
    STEP,
    TILE,
    Magnitudes,
    Packer,
    Words,
    write_words,
)

_PITCH_PADDING = LANES
"""Floats between the rows of scores, because rows a multiple of 4 KiB apart share a set of L1."""


class PackedAttention(AttentionLoops):
    """Packs the inputs of attention by tiles.

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

            def write(row: Expr, words: Words) -> Stmt:
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
                emit.loop("half", 2, partial(tile, columns=LANES, part=part))
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

    def _pack_queries(self, packer: Packer, place: QueryPlace, scratch: Scratch) -> Stmt:
        scale = self.spec.scale * (1.0 if self.mask is not None else LOG2_E)

        def tile(at: Expr, part: int) -> Stmt:
            def scaled(row: Expr, d: Expr, lanes: int) -> Expr:
                query = (place.b, place.h, place.first + at * LANES + row, part * STEP + d)
                return self.query.load(*query, lanes) * emit.constant(scale, lanes)

            starts = [self._query_place(part, p, at) for p in range(self.parts)]
            return packer.data(
                scaled,
                self.depths[part],
                lambda row, words: write_words(scratch.queries, starts, row, words),
            )

        return emit.sequence(
            [
                emit.loop("tile", self.block.query_tiles, partial(tile, part=part))
                for part in range(len(self.depths))
            ]
        )

    def _query_place(self, step: Expr, part: int, tile: Expr) -> Expr:
        """The place of a step of features and a tile of queries."""
        return emit.join((step, part, tile), (0, self.parts, self.block.query_tiles)) * TILE

    def _power_place(self, item: Item, step: Expr, part: int, tile: Expr) -> Expr:
        """The place of a step of keys and a tile of queries in packed exponentials."""
        block = self.block
        digits = (item.slot, step, part, tile)
        return emit.join(digits, (0, block.steps, self.parts, block.rows)) * TILE

"""The design space of attention by tile products of bfloat16 parts (AMX)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs
import numpy as np
from chameleon_core.plugin_api import Choice, Constraint, Values

from chameleon_tvm._device.targets import TargetInfo
from chameleon_tvm._instructions.tiles import TileProduct
from chameleon_tvm._operators.attention_specs import AttentionSpec
from chameleon_tvm._spaces.template.algorithms import ALGORITHM
from chameleon_tvm._spaces.template.estimates import (
    FLOAT_BYTES,
    TILE_CYCLES,
    Numbers,
    Tiling,
    as_floats,
    by_algorithm,
)
from chameleon_tvm._spaces.template.tile_packing import LANES, STEP
from chameleon_tvm._spaces.template.tile_tiling import PRODUCTS_OF_PARTS

BLOCK_KNOBS = ("product_queries", "product_vectors", "product_keys")
"""Knobs of the inner loops: tiles of queries, tiles in registers across, and keys of a block."""
KEY_BLOCKS = (128, 256, 512, 1024)
_EXPONENTIAL_CYCLES = 12.0
"""Cycles in which a vector of scores becomes exponentials and their parts."""

_ROW_CYCLES = 40.0
"""Cycles in which a query's largest score of a block gets into all lanes."""


@attrs.frozen(kw_only=True)
class AttentionTileEstimates:
    """Estimates for n configurations of attention by tiles; every field has shape (n,).

    Attributes:
        registers: Tiles that are held in registers.
        loads: Tiles loaded for each product.
        waste: Number of computed scores over the number of needed scores.
        tasks: Number of iterations of the parallel loop, over heads and blocks of queries.
        imbalance: Time of the busiest core over its time if work were divided evenly.
        scratch_bytes: Bytes of scores and exponentials of a block.
        blocks: Number of blocks of keys.
        scratch_in_l1: ``scratch_bytes`` over the size of L1.
        scratch_in_l2: ``scratch_bytes`` over the size of L2.
    """

    registers: Numbers
    loads: Numbers
    waste: Numbers
    tasks: Numbers
    imbalance: Numbers
    scratch_bytes: Numbers
    blocks: Numbers
    scratch_in_l1: Numbers
    scratch_in_l2: Numbers


class AttentionTileTiling(Tiling):
    """The design space of attention by tiles."""

    tile_knobs = BLOCK_KNOBS
    estimates = AttentionTileEstimates
    log_fields = frozenset({"tasks", "scratch_bytes", "blocks"})
    groups = (
        ("tile", ("registers", "loads", "waste")),
        ("parallel loop", ("tasks", "imbalance")),
        ("block of keys", ("scratch_bytes", "scratch_in_l1", "scratch_in_l2", "blocks")),
    )
    prefix = "product"

    def __init__(
        self,
        spec: AttentionSpec,
        info: TargetInfo,
        product: TileProduct,
        parts: Mapping[str, int],
    ) -> None:
        self.spec = spec
        self.info = info
        self.product = product
        self.parts = parts
        queries, keys = spec.scores[2:]
        tiles = tuple(count for count in (1, 2, 4, 8) if count * LANES <= queries)
        all_keys = math.ceil(keys / STEP) * STEP
        blocks = (*(block for block in KEY_BLOCKS if block < keys), all_keys)
        self.knobs = (
            Choice(name=ALGORITHM, options=tuple(parts)),
            Choice(name="product_queries", options=tiles),
            Choice(name="product_vectors", options=(1, 2)),
            Choice(name="product_keys", options=blocks),
        )

    def constraints(self) -> tuple[Constraint, ...]:
        return ()

    def estimate(self, values: Values) -> AttentionTileEstimates:
        batch, heads, queries, keys = self.spec.scores
        tiles, across, block = as_floats(values, *BLOCK_KNOBS)
        down = np.minimum(tiles, 2.0)
        blocks = np.ceil(queries / (tiles * LANES))
        padded = blocks * tiles * LANES * math.ceil(keys / STEP) * STEP
        tasks = batch * heads * blocks
        parts = by_algorithm(values, self.parts)
        # At most two groups of two tiles of queries have scores and exponentials at a time.
        held = np.minimum(tiles, 4.0) * LANES * block
        scratch = held * (FLOAT_BYTES + np.dtype(self.product.data).itemsize * parts)
        return AttentionTileEstimates(
            registers=down * across + down + across,
            loads=(down + across) / (down * across),
            waste=padded / (queries * keys),
            tasks=tasks,
            imbalance=self.imbalance(tasks),
            scratch_bytes=scratch,
            blocks=np.ceil(keys / block),
            scratch_in_l1=scratch / self.info.l1_bytes,
            scratch_in_l2=scratch / self.info.l2_bytes,
        )

    def guessed_cost(self, values: Values) -> Numbers:
        """Estimated cycles per vector of scores, to order first guesses; shape (n,)."""
        spec, e, product = self.spec, self.estimate(values), self.product
        number = {name: PRODUCTS_OF_PARTS[parts, parts] for name, parts in self.parts.items()}
        products = by_algorithm(values, number) * product.cost * np.maximum(1.0, e.loads)
        # Products per vector of scores: of each step of features, and of each tile of values.
        each = math.ceil(spec.query[3] / STEP) + math.ceil(spec.value[3] / LANES) / 2
        inner = each * (products + TILE_CYCLES / 2) / LANES
        tiles, _, block = as_floats(values, *BLOCK_KNOBS)
        # A block's scores and exponentials move between L1 and L2 if they exceed L1. Keys and
        # values are read from L2 for all queries of an iteration.
        moves = (e.scratch_in_l1 > 1.0) * 2.0 + (e.scratch_in_l2 > 1.0) * 8.0 + 8.0 / tiles
        ends = (_ROW_CYCLES * LANES + (e.blocks > 1) * 4.0 * spec.value[3]) / block
        cycles = inner + _EXPONENTIAL_CYCLES + moves + ends
        return np.asarray(e.imbalance * e.waste * cycles)

"""The design spaces of attention, by vectors and by tile products of bfloat16 parts (AMX)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import attrs
import numpy as np
from chameleon_core.plugin_api import Choice, Constraint, Values

from chameleon_tvm._device.targets import TargetInfo
from chameleon_tvm._instructions.tiles import TileProduct
from chameleon_tvm._operators.attention_specs import AttentionSpec
from chameleon_tvm._spaces.template.estimates import (
    FLOAT_BYTES,
    LOOP_CYCLES,
    TILE_CYCLES,
    Numbers,
    Tiling,
    as_floats,
    broadcast_is_operand,
    by_algorithm,
)
from chameleon_tvm._spaces.template.options import ALGORITHM
from chameleon_tvm._spaces.template.tile_packing import LANES, STEP
from chameleon_tvm._spaces.template.tile_tiling import FACTORS, PRODUCTS_OF_PARTS
from chameleon_tvm._types import HALVES

EXPONENTIAL_OPERATIONS = 14.0
"""Vector instructions that turn a vector of scores into exponentials and add these up."""
TRANSPOSED_CYCLES = 1.5
"""Cycles for transposing one element of the queries."""
KEY_BLOCKS = (64, 128, 256, 512, 1024)
TILE_KNOBS = ("query_vectors", "key_rows", "query_rows", "value_vectors", "key_block")
"""Knobs of the inner loops. Configurations with equal values of these run the same inner loops."""
BLOCK_KNOBS = ("product_queries", "product_vectors", "product_keys")
"""Knobs of the inner loops: tiles of queries, tiles in registers across, and keys of a block."""
_TILED_KEY_BLOCKS = (128, 256, 512, 1024)
_EXPONENTIAL_CYCLES = 12.0
"""Cycles in which a vector of scores becomes exponentials and their parts."""
_ROW_CYCLES = 40.0
"""Cycles in which a query's largest score of a block gets into all lanes."""


@attrs.frozen(kw_only=True)
class AttentionEstimates:
    """Estimates of attention kernels for n configurations; every field has shape (n,).

    Attributes:
        score_sums: Vector registers that hold sums of products of queries and keys.
        score_registers: Vector registers that the inner loop of the scores needs.
        score_loads: Vector and broadcast loads per multiply-add in the inner loop of the scores.
        value_sums: Vector registers that hold sums of values, on average.
        value_registers: Vector registers that the inner loop of the values needs.
        value_loads: Vector and broadcast loads per multiply-add in the inner loop of the values.
        waste: Number of computed scores over the number of needed scores.
        tasks: Number of iterations of the parallel loop, over heads and tiles of queries.
        imbalance: Time of the busiest core over its time if work were divided evenly.
        scratch_bytes: Bytes of the scores and queries that an iteration of the parallel loop keeps.
        block_bytes: Bytes of the keys and values of a block.
        blocks: Number of blocks of keys.
        scratch_in_l1: ``scratch_bytes`` over the size of L1.
        block_in_l2: ``block_bytes`` over the size of L2.
    """

    score_sums: Numbers
    score_registers: Numbers
    score_loads: Numbers
    value_sums: Numbers
    value_registers: Numbers
    value_loads: Numbers
    waste: Numbers
    tasks: Numbers
    imbalance: Numbers
    scratch_bytes: Numbers
    block_bytes: Numbers
    blocks: Numbers
    scratch_in_l1: Numbers
    block_in_l2: Numbers


class AttentionTiling(Tiling):
    """The design space of attention."""

    tile_knobs = TILE_KNOBS
    estimates = AttentionEstimates
    log_fields = frozenset({"tasks", "scratch_bytes", "block_bytes", "blocks"})
    groups = (
        ("scores", ("score_sums", "score_registers", "score_loads", "waste")),
        ("values", ("value_sums", "value_registers", "value_loads")),
        ("parallel loop", ("tasks", "imbalance")),
        ("scratch", ("scratch_bytes", "scratch_in_l1")),
        ("block of keys", ("block_bytes", "block_in_l2", "blocks")),
    )

    def __init__(self, spec: AttentionSpec, info: TargetInfo, depth: int = 1) -> None:
        self.spec = spec
        self.info = info
        self.depth = depth
        self.lanes = info.lanes("float32")
        queries, keys = spec.scores[2:]
        query_vectors = -(-queries // self.lanes)
        value_vectors = -(-spec.value[3] // self.lanes)
        self._sizes = {
            "query_vectors": _at_most((1, 2, 3, 4, 6), query_vectors),
            "key_rows": _at_most((1, 2, 3, 4, 5, 6, 8, 12), keys),
            "query_rows": _at_most((1, 2, 3, 4, 5, 6, 8, 12), queries),
            "value_vectors": _at_most((1, 2, 3, 4, 5, 6, 8), value_vectors),
            "key_block": (*(block for block in KEY_BLOCKS if block < keys), keys),
            "unroll": tuple(u for u in (1, 2, 4, 8) if spec.query[3] // depth % u == 0),
        }
        self.knobs = (
            *(Choice(name=name, options=self._sizes[name]) for name in TILE_KNOBS),
            Choice(name="keys", options=self._key_options()),
            Choice(name="unroll", options=self._sizes["unroll"]),
        )

    def _key_options(self) -> tuple[str, ...]:
        """How kernels read keys and values: in place, or from a contiguous float32 copy."""
        spec = self.spec
        if spec.key_layout == "BHDS":
            return ("copy",)
        strided = (
            spec.packed
            or spec.dtype in HALVES
            or any(
                layout == "BSHD" and shape[1] > 1
                for layout, shape in ((spec.key_layout, spec.key), (spec.value_layout, spec.value))
            )
        )
        return ("in_place", "copy") if strided else ("in_place",)

    def constraints(self) -> tuple[Constraint, ...]:
        keys = self.spec.scores[3]
        scores, outputs = (
            self.register_constraints(least, f"a tile of {name}s", f"{of}_registers", f"{of}_sums")
            for least, name, of in zip(
                self._latency_hiding_sums(), ("score", "output"), ("score", "value"), strict=True
            )
        )
        return (
            *(scores[0], outputs[0], scores[1], outputs[1]),
            Constraint(
                reason="the last block has fewer keys than a tile of scores",
                holds=lambda v: (keys - 1) % v["key_block"] + 1 >= v["key_rows"],
            ),
        )

    def _latency_hiding_sums(self) -> tuple[float, float]:
        """The fewest sums of scores and of outputs that hide the latency, or the most that fit."""
        registers = self.info.vector_registers
        grid = np.meshgrid(*(np.array(self._sizes[name]) for name in TILE_KNOBS), indexing="ij")
        e = self.estimate(dict(zip(TILE_KNOBS, map(np.ravel, grid), strict=True)))
        fits = (e.score_registers <= registers) & (e.value_registers <= registers)
        scores = min(registers // 4, e.score_sums[fits].max())
        values = min(registers // 4, e.value_sums[fits & (e.score_sums >= scores)].max())
        return scores, values

    def estimate(self, values: Values) -> AttentionEstimates:
        spec, info = self.spec, self.info
        batch, heads, queries, keys = spec.scores
        vectors, rows, outputs, columns, block = as_floats(values, *TILE_KNOBS)
        broadcast_registers = not broadcast_is_operand(info)
        width = vectors * self.lanes
        # The remainders at the ends of a tile of outputs are computed in smaller pieces.
        mean_rows = width / np.ceil(width / outputs)
        value_vectors = np.ceil(spec.value[3] / self.lanes)
        mean_columns = value_vectors / np.ceil(value_vectors / columns)
        tiles = np.ceil(queries / width)
        computed = np.floor(queries / width) * width
        computed += np.ceil((queries - computed) / self.lanes) * self.lanes
        tasks = batch * heads * tiles
        scratch = (block + spec.query[3]) * width * FLOAT_BYTES
        block_bytes = block * (spec.query[3] + spec.value[3]) * FLOAT_BYTES
        return AttentionEstimates(
            score_sums=rows * vectors,
            score_registers=rows * vectors + vectors + ((vectors > 1) | broadcast_registers),
            score_loads=(rows + vectors) / (rows * vectors),
            value_sums=mean_rows * mean_columns,
            value_registers=outputs * columns + columns + ((columns > 1) | broadcast_registers),
            value_loads=(mean_rows + mean_columns) / (mean_rows * mean_columns),
            waste=computed / queries,
            tasks=tasks,
            imbalance=self.imbalance(tasks),
            scratch_bytes=scratch,
            block_bytes=block_bytes,
            blocks=np.ceil(keys / block),
            scratch_in_l1=scratch / info.l1_bytes,
            block_in_l2=block_bytes / info.l2_bytes,
        )

    def guessed_cost(self, values: Values) -> Numbers:
        """Estimated time over that of all products at the CPU's full rate, shape (n,)."""
        spec, info, e = self.spec, self.info, self.estimate(values)
        inner, outer = spec.query[3], spec.value[3] / self.lanes
        vectors, rows, outputs, _, block = as_floats(values, *TILE_KNOBS)
        width = vectors * self.lanes
        # A broadcast as an operand costs half as much as a broadcast into a register.
        broadcast = 0.5 if broadcast_is_operand(info) else 1.0
        score_ports = 1.0 / rows + broadcast / vectors
        value_ports = e.value_loads * (1.0 + broadcast) / 2
        # Values are read again for every tile of outputs, from L2 if a block exceeds L1.
        exceeds_l1 = e.block_bytes + e.scratch_bytes > info.l1_bytes
        streaming = exceeds_l1 * info.l2_vector_fmas / outputs
        in_place = values["keys"] == "in_place"
        steps = inner / self.depth
        scores = steps * _cycles_per_fma(score_ports, e.score_sums, info)
        scores += (LOOP_CYCLES + TILE_CYCLES) / e.score_sums + steps * exceeds_l1 / (width * rows)
        products = (
            self.lanes
            * outer
            * _cycles_per_fma(np.maximum(value_ports, streaming), e.value_sums, info)
        )
        products += outer * self.lanes * (LOOP_CYCLES + TILE_CYCLES) / (e.value_sums * block)
        exponentials = EXPONENTIAL_OPERATIONS / 2
        # Between blocks, sums of values are read and written once more.
        moves = (e.blocks > 1) * 2.0 * outer * self.lanes / block
        moves = moves + TRANSPOSED_CYCLES * spec.query[3] * self.lanes / spec.scores[3]
        # A block whose scores do not fit into L1 is written to and read from L2.
        spilled = (e.scratch_bytes > info.l1_bytes) * info.l2_vector_fmas * 2
        copied = np.where(
            values["keys"] == "copy", 2.0 * (inner + spec.value[3]) / spec.scores[2], 0.0
        )
        # An instruction widens each 16-bit value that is read in place, and each feature of a key
        # unless an instruction multiplies 16-bit numbers.
        widened: Numbers | float = 0.0
        if spec.dtype in HALVES:
            widened = in_place * self.lanes * outer / outputs
            widened = widened + in_place * (self.depth == 1) * inner / vectors
        # Keys of neighbouring tokens that lie a power of two apart share few sets of a cache.
        stride = spec.query[1] * spec.query[3] * FLOAT_BYTES
        conflicts = (stride & (stride - 1) == 0) and len(self._key_options()) > 1
        strided = np.where(in_place & conflicts, 0.2 * inner, 0.0)
        tiles = scores + products + exponentials + moves + spilled + widened
        cycles = e.imbalance * (e.waste * tiles + copied + strided)
        return np.asarray(cycles / _product_cycles(spec, info))


def _product_cycles(spec: AttentionSpec, info: TargetInfo) -> float:
    """Cycles of the products for a vector of scores, at the CPU's full rate."""
    return (spec.query[3] + spec.value[3]) / info.fma_per_cycle


def _cycles_per_fma(ports: Numbers, sums: Numbers, info: TargetInfo) -> Numbers:
    """Cycles per multiply-add, limited by the busiest unit or by too few independent sums."""
    latency = info.vector_registers / 2 / np.maximum(sums, 1.0)
    return np.asarray(np.maximum(1.0, np.maximum(ports, latency)))


def _at_most(options: tuple[int, ...], most: int) -> tuple[int, ...]:
    """The options that are at most ``most``, or ``most`` itself if there are none."""
    return tuple(option for option in options if option <= most) or (most,)


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
        blocks = (*(block for block in _TILED_KEY_BLOCKS if block < keys), all_keys)
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
            registers=down * across + FACTORS,
            loads=1.0 + 1.0 / (down * across),
            waste=padded / (queries * keys),
            tasks=tasks,
            imbalance=self.imbalance(tasks),
            scratch_bytes=scratch,
            blocks=np.ceil(keys / block),
            scratch_in_l1=scratch / self.info.l1_bytes,
            scratch_in_l2=scratch / self.info.l2_bytes,
        )

    def guessed_cost(self, values: Values) -> Numbers:
        """Estimated time over that of all products at the CPU's full rate, shape (n,)."""
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
        return np.asarray(e.imbalance * e.waste * cycles / _product_cycles(spec, self.info))

"""Algorithms of float32 products of two varying matrices by tile products of bfloat16 (AMX)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import Arrays, Choice, Constraint, DesignSpace, Values

from chameleon_tvm._device.targets import TargetInfo, target_info
from chameleon_tvm._instructions.base import Instruction
from chameleon_tvm._instructions.tiles import TileProduct
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._operators.matmul_specs import BatchMatmulSpec
from chameleon_tvm._spaces.template.algorithms import ALGORITHM, Algorithm, allowed_names
from chameleon_tvm._spaces.template.estimates import (
    COPY_COST,
    FLOAT_BYTES,
    TILE_CYCLES,
    Numbers,
    Tiling,
    as_floats,
    by_algorithm,
)
from chameleon_tvm._spaces.template.matmul_tiles import MatmulTiles, TiledSizes
from chameleon_tvm._spaces.template.options import SPLIT_PARTS, TemplateOptions
from chameleon_tvm._spaces.template.split_algorithm import split_error, split_product_of
from chameleon_tvm._spaces.template.tile_algorithm import PARTS_PER_CORE
from chameleon_tvm._spaces.template.tile_packing import LANES, STEP, supports
from chameleon_tvm._spaces.template.tile_tiling import PRODUCTS_OF_PARTS
from chameleon_tvm._types import FLOAT32

BLOCK_KNOBS = ("product_rows", "product_vectors")
"""Knobs of the inner loops: tiles of a block down and across."""
_MOST_TILES = 3
"""Largest number of tiles of a block's side."""


@attrs.frozen(kw_only=True)
class MatmulEstimates:
    """Estimates for n configurations of products of matrices in tiles.

    Every field has shape (n,).

    Attributes:
        registers: Tiles that are held in registers.
        loads: Tiles loaded for each product.
        waste: Number of computed outputs over the number of needed outputs.
        tasks: Number of iterations of the parallel loop.
        imbalance: Time of the busiest core over its time if work were divided evenly.
        weight_bytes: Bytes of the packed right side of a product.
    """

    registers: Numbers
    loads: Numbers
    waste: Numbers
    tasks: Numbers
    imbalance: Numbers
    weight_bytes: Numbers


class MatmulTiling(Tiling):
    """The design space of products of matrices in tiles."""

    tile_knobs = BLOCK_KNOBS
    estimates = MatmulEstimates
    log_fields = frozenset({"tasks", "weight_bytes"})
    groups = (
        ("tile", ("registers", "loads", "waste")),
        ("parallel loop", ("tasks", "imbalance")),
        ("weights", ("weight_bytes",)),
    )
    prefix = "product"

    def __init__(
        self,
        spec: BatchMatmulSpec,
        info: TargetInfo,
        product: TileProduct,
        parts: Mapping[str, int],
    ) -> None:
        self.spec = spec
        self.info = info
        self.product = product
        self.parts = parts
        self.knobs = (
            Choice(name=ALGORITHM, options=tuple(parts)),
            *(
                Choice(name=name, options=tuple(range(1, min(_MOST_TILES, extent // LANES) + 1)))
                for name, extent in zip(BLOCK_KNOBS, (spec.a[1], spec.columns), strict=True)
            ),
        )

    def constraints(self) -> tuple[Constraint, ...]:
        most = self.product.registers
        return (
            Constraint(
                reason=f"the block needs more than {most} tiles",
                holds=lambda v: self.estimate(v).registers <= most,
            ),
        )

    def estimate(self, values: Values) -> MatmulEstimates:
        batch, rows, inner = self.spec.a
        down, across = as_floats(values, *BLOCK_KNOBS)
        row_blocks = np.ceil(rows / (down * LANES))
        column_blocks = np.ceil(self.spec.columns / (across * LANES))
        wanted = PARTS_PER_CORE * self.info.cores // (batch * row_blocks)
        tasks = batch * row_blocks * np.clip(wanted, 1.0, column_blocks)
        computed = row_blocks * down * column_blocks * across * LANES**2
        panel = (
            math.ceil(inner / STEP)
            * STEP
            * across
            * LANES
            * np.dtype(self.product.weights).itemsize
        )
        return MatmulEstimates(
            registers=down * across + down + across,
            loads=(down + across) / (down * across),
            waste=computed / (rows * self.spec.columns),
            tasks=tasks,
            imbalance=self.imbalance(tasks),
            weight_bytes=by_algorithm(values, self.parts) * column_blocks * panel,
        )

    def guessed_cost(self, values: Values) -> Numbers:
        """Estimated cycles over those of as many products of full vectors, of shape (n,)."""
        spec, e, product = self.spec, self.estimate(values), self.product
        down, across = as_floats(values, *BLOCK_KNOBS)
        number = {name: PRODUCTS_OF_PARTS[parts, parts] for name, parts in self.parts.items()}
        inner = by_algorithm(values, number) * product.cost * np.maximum(1.0, e.loads)
        steps = math.ceil(spec.a[2] / STEP)
        ends = TILE_CYCLES / (steps * down * across)
        packed = FLOAT_BYTES * STEP * LANES**2 * (1.0 / spec.a[1] + 1.0 / spec.columns)
        copies = COPY_COST * packed / self.info.l3_bytes_per_cycle
        vectors = LANES**2 * STEP / self.info.lanes(FLOAT32)
        cycles = e.imbalance * e.waste * (inner + ends) + copies
        return np.asarray(cycles * self.info.fma_per_cycle / vectors)


@attrs.frozen(kw_only=True, eq=False)
class MatmulSplit(Algorithm):
    """Algorithms of float32 products by tiles of bfloat16: ``split3`` and ``split6``.

    Attributes:
        fallback: The direct algorithm, which computes infinities and NaN.
    """

    spec: BatchMatmulSpec
    info: TargetInfo
    product: TileProduct
    names: Sequence[str]
    fallback: Algorithm

    @property
    def instructions(self) -> Sequence[Instruction]:  # type: ignore[override]
        return (self.product,)

    def space(self) -> DesignSpace:
        parts = {name: SPLIT_PARTS[name] for name in self.names}
        return MatmulTiling(self.spec, self.info, self.product, parts).space()

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        space = self.fallback.space()
        direct = self.fallback.function(space.decode(space.first_guesses[0]))
        sizes = TiledSizes(
            spec=self.spec,
            down=values["product_rows"],
            across=values["product_vectors"],
            cores=self.info.cores,
        )
        return MatmulTiles(sizes, self.product, SPLIT_PARTS[values[ALGORITHM]], direct).function()

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        del values  # there are no constants
        return constants


def matmul_split(
    spec: BatchMatmulSpec, target: str, options: TemplateOptions, direct: Algorithm
) -> MatmulSplit | None:
    """The algorithms of a product that the options allow, if its sides fill tiles."""
    names = allowed_names(options, SPLIT_PARTS, split_error)
    small = spec.a[1] < LANES or spec.columns < LANES or spec.a[2] < STEP
    if not names or spec.dtype != FLOAT32 or small:
        return None
    product = split_product_of(target)
    if product is None or not supports(product):
        return None
    return MatmulSplit(
        spec=spec, info=target_info(target), product=product, names=names, fallback=direct
    )

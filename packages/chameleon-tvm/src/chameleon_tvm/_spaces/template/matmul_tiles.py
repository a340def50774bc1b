"""Float32 products of two varying matrices by tile products of bfloat16 parts (AMX).

A loop packs the right sides. Each iteration of the parallel loop after it packs rows of the left
side and multiplies them with columns of the right side. If either side has infinities, NaN or
numbers that round to infinity, the direct algorithm computes all products again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import Arrays, Choice, Constraint, DesignSpace, Values

from chameleon_tvm import _emit as emit
from chameleon_tvm._device.targets import TargetInfo, target_info
from chameleon_tvm._emit import Buffer, Expr, Stmt
from chameleon_tvm._instructions.base import BFLOAT16_BITS, Instruction
from chameleon_tvm._instructions.tiles import TileProduct
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._operators.matmul_specs import BatchMatmulSpec
from chameleon_tvm._spaces.template import tile_packing
from chameleon_tvm._spaces.template.algorithms import Algorithm, allowed_names
from chameleon_tvm._spaces.template.estimates import (
    COPY_COST,
    FLOAT_BYTES,
    TILE_CYCLES,
    Numbers,
    Tiling,
    as_floats,
    by_algorithm,
)
from chameleon_tvm._spaces.template.options import ALGORITHM, SPLIT_PARTS, TemplateOptions
from chameleon_tvm._spaces.template.split_algorithm import split_error, split_product_of
from chameleon_tvm._spaces.template.tile_algorithm import PARTS_PER_CORE
from chameleon_tvm._spaces.template.tile_blocks import TileBlocks
from chameleon_tvm._spaces.template.tile_packing import (
    LANES,
    STEP,
    TILE,
    Magnitudes,
    Packer,
    Words,
    supports,
)
from chameleon_tvm._spaces.template.tile_tiling import FACTORS, PRODUCTS_OF_PARTS
from chameleon_tvm._types import FLOAT32

BLOCK_KNOBS = ("product_rows", "product_vectors")
"""Knobs of the inner loops: tiles of a block down and across."""
_MOST_TILES = 3
"""Largest number of tiles of a block's side."""


@attrs.frozen(kw_only=True)
class TiledSizes:
    """The sizes of products of matrices in tiles, the last of which overlap on rows and columns.

    Attributes:
        down: Tiles of rows of a block.
        across: Tiles of columns of a block.
        groups: Number of parts into which the columns of a product are divided for the threads.
    """

    spec: BatchMatmulSpec
    down: int
    across: int
    cores: int

    @property
    def row_blocks(self) -> int:
        return math.ceil(self.spec.a[1] / (self.down * LANES))

    @property
    def column_blocks(self) -> int:
        return math.ceil(self.spec.columns / (self.across * LANES))

    @property
    def steps(self) -> int:
        return math.ceil(self.spec.a[2] / STEP)

    @property
    def groups(self) -> int:
        wanted = PARTS_PER_CORE * self.cores / (self.spec.a[0] * self.row_blocks)
        return min(self.column_blocks, max(1, math.floor(wanted)))


class MatmulTiles:
    """Writes the function of a batch of matrix products by tiles of parts."""

    def __init__(
        self, sizes: TiledSizes, product: TileProduct, parts: int, fallback: tirx.PrimFunc
    ) -> None:
        self.spec = sizes.spec
        self.sizes = sizes
        self.product = product
        self.parts = parts
        self.fallback = fallback
        self.left = emit.buffer("data", self.spec.a)
        self.right = emit.buffer("right", self.spec.b)
        # Tile products write to rows of a one-dimensional buffer.
        self.out = emit.buffer("out", (math.prod(self.spec.result_shape),))
        self.blocks = TileBlocks(product, sizes.down, sizes.across, parts)
        batch = self.spec.a[0]
        self.panels = (batch, sizes.column_blocks, sizes.steps)
        self.weights = emit.buffer(
            "weights",
            (math.prod(self.panels) * parts * sizes.across * TILE,),
            dtype=BFLOAT16_BITS,
        )
        self.tasks = (batch, sizes.row_blocks, sizes.groups)
        self.noted = (
            Magnitudes("right_largest", *[math.prod(self.panels)] * 2),
            Magnitudes("left_largest", *[math.prod(self.tasks)] * 2),
        )

    def function(self) -> tirx.PrimFunc:
        """The complete function; parameters: data, right, out."""
        right, left = self.noted
        pack = right.loop("panel", self._pack_panel, self.parts)
        multiply = left.loop("task", self._multiply, self.parts)
        parameters = [self.left, self.right, self.out]
        same = [
            tirx.DeclBuffer(theirs, data=mine.data)
            for theirs, mine in zip(self.fallback.params, parameters, strict=True)
        ]
        repeat = tile_packing.repeat_unless_finite(
            self.noted, emit.sequence([*same, self.fallback.body])
        )
        scratch = [self.weights, right.kept, left.kept]
        body = emit.allocate(scratch, emit.sequence([pack, multiply, repeat]))
        return emit.function(parameters, body)

    def _at_depth(self, step: Expr, body: Callable[[int], Stmt]) -> Stmt:
        """A statement for a step, the last of which may have fewer numbers."""
        whole, rest = divmod(self.spec.a[2], STEP)
        if not rest:
            return body(STEP)
        if not whole:
            return body(rest)
        return emit.branch([(step < whole, body(STEP))], body(rest))

    def _pack_panel(self, packer: Packer, index: Expr) -> Stmt:
        """Pack the tiles of a step of a block of columns of a right side."""
        n, block, step = emit.split(index, self.panels)
        first = emit.tile_start(block, self.sizes.across * LANES, self._columns)

        def tile(at: Expr) -> Stmt:
            starts = [self._weights_place(index, part, at) for part in range(self.parts)]
            pack = self._pack_tile(packer, (n, step * STEP, first + at * LANES), starts)
            return self._at_depth(step, pack)

        return emit.loop("tile", self.sizes.across, tile)

    @property
    def _columns(self) -> int:
        """Number of columns, or of those of a block if there are fewer."""
        return max(self.spec.columns, self.sizes.across * LANES)

    def _pack_tile(
        self, packer: Packer, at: tuple[Expr, Expr, Expr], starts: list[Expr]
    ) -> Callable[[int], Stmt]:
        n, k, column = at

        def write(row: Expr, words: Words) -> Stmt:
            return tile_packing.write_words(self.weights, starts, row, words)

        def transposed(row: Expr, first: Expr, lanes: int) -> Expr:
            return emit.load(self.right, [n, column + row, k + first], lanes)

        def read(row: Expr, first: Expr, lanes: int) -> Expr:
            return emit.load(self.right, [n, k + row, column + first], lanes)

        def pack(depth: int) -> Stmt:
            if self.spec.transpose_b:
                return packer.transposed_weights(transposed, depth, LANES, write)
            return packer.weights(read, depth, LANES, write)

        return pack

    def _weights_place(self, panel: Expr, part: int, at: Expr) -> Expr:
        return ((panel * self.parts + part) * self.sizes.across + at) * TILE

    def _multiply(self, packer: Packer, index: Expr) -> Stmt:
        """Multiply a block of rows with a group of blocks of columns."""
        sizes = self.sizes
        n, block, group = emit.split(index, self.tasks)
        first = emit.tile_start(block, sizes.down * LANES, self.spec.a[1])
        rows = emit.buffer(
            "rows", (self.parts * sizes.steps * sizes.down * TILE,), dtype=BFLOAT16_BITS
        )

        def pack(step: Expr) -> Stmt:
            tile = partial(self._pack_rows, packer, rows, (n, first, step))
            return emit.loop("tile", sizes.down, tile)

        begin = tirx.floordiv(group * sizes.column_blocks, sizes.groups)
        end = tirx.floordiv((group + 1) * sizes.column_blocks, sizes.groups)
        products = emit.loop(
            "block", end - begin, lambda at: self._block(rows, (n, first, begin + at))
        )
        tiles = self.product.around(self.blocks.registers, products)
        packing = emit.loop("step", sizes.steps, pack)
        return emit.allocate(rows, emit.sequence([packing, tiles]))

    def _pack_rows(
        self, packer: Packer, rows: Buffer, at: tuple[Expr, Expr, Expr], tile: Expr
    ) -> Stmt:
        n, first, step = at
        starts = [self._rows_place(step, part, tile) for part in range(self.parts)]

        def read(row: Expr, column: Expr, lanes: int) -> Expr:
            return emit.load(
                self.left, [n, first + tile * LANES + row, step * STEP + column], lanes
            )

        def write(row: Expr, words: Words) -> Stmt:
            return tile_packing.write_words(rows, starts, row, words)

        return self._at_depth(step, lambda depth: packer.data(read, depth, write))

    def _rows_place(self, step: Expr, part: int, at: Expr) -> Expr:
        return ((step * self.parts + part) * self.sizes.down + at) * TILE

    def _block(self, rows: Buffer, at: tuple[Expr, Expr, Expr]) -> Stmt:
        """Compute a block of outputs."""
        n, first, block = at
        sizes, blocks, columns = self.sizes, self.blocks, self.spec.columns
        column = emit.tile_start(block, sizes.across * LANES, self._columns)
        places = [(r, c) for r in range(sizes.down) for c in range(sizes.across)]

        def step(number: Expr) -> Stmt:
            panel = emit.join((n, block, number), self.panels)
            return blocks.multiply(
                (rows, lambda part, at: self._rows_place(number, part, at)),
                (self.weights, lambda part, at: self._weights_place(panel, part, at)),
                sizes.down,
                sizes.across,
            )

        def place(r: int, c: int) -> Expr:
            row = n * self.spec.a[1] + first + r * LANES
            return row * columns + column + c * LANES

        return emit.sequence(
            [
                *(self.product.zero(blocks.sums(r, c)) for r, c in places),
                emit.loop("step", sizes.steps, step),
                *(
                    self.product.store(blocks.sums(r, c), self.out, place(r, c), columns)
                    for r, c in places
                ),
            ]
        )


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
        most = self.product.registers - 1
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
            registers=down * across + FACTORS,
            loads=1.0 + 1.0 / (down * across),
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

    def work(self, values: Mapping[str, Any]) -> float:
        parts = SPLIT_PARTS[values[ALGORITHM]]
        return PRODUCTS_OF_PARTS[parts, parts]

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

"""Float32 products of two varying matrices by tile products of bfloat16 parts (AMX).

A loop packs the right sides. Each iteration of the parallel loop after it packs rows of the left
side and multiplies them with columns of the right side. If either side has infinities, NaN or numbers that
round to infinity, the direct algorithm computes all products again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Buffer, Expr, Stmt
from chameleon_tvm._instructions.base import BFLOAT16_BITS
from chameleon_tvm._instructions.tiles import TileProduct
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._operators.matmul_specs import BatchMatmulSpec
from chameleon_tvm._spaces.template import tile_packing
from chameleon_tvm._spaces.template.tile_algorithm import PARTS_PER_CORE
from chameleon_tvm._spaces.template.tile_blocks import TileBlocks
from chameleon_tvm._spaces.template.tile_packing import (
    LANES,
    STEP,
    TILE,
    Magnitudes,
    Packer,
    Words,
)


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
            Magnitudes("right_largest", math.prod(self.panels)),
            Magnitudes("left_largest", math.prod(self.tasks)),
        )

    def function(self) -> tirx.PrimFunc:
        """The complete function; parameters: data, right, out."""
        right, left = self.noted
        pack = emit.parallel(
            "panel",
            math.prod(self.panels),
            lambda at: right.observed(at, lambda packer: self._pack_panel(packer, at), self.parts),
        )
        multiply = emit.parallel(
            "task",
            math.prod(self.tasks),
            lambda at: left.observed(at, lambda packer: self._multiply(packer, at), self.parts),
        )
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
        statements = []
        for at in range(self.sizes.across):
            starts = [self._weights_place(index, part, at) for part in range(self.parts)]
            pack = self._pack_tile(packer, (n, step * STEP, first + at * LANES), starts)
            statements.append(self._at_depth(step, pack))
        return emit.sequence(statements)

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

    def _weights_place(self, panel: Expr, part: int, at: int) -> Expr:
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
            return emit.sequence(
                [self._pack_rows(packer, rows, (n, first, step), at) for at in range(sizes.down)]
            )

        begin = tirx.floordiv(group * sizes.column_blocks, sizes.groups)
        end = tirx.floordiv((group + 1) * sizes.column_blocks, sizes.groups)
        products = emit.loop(
            "block", end - begin, lambda at: self._block(rows, (n, first, begin + at))
        )
        tiles = self.product.around(self.blocks.registers, products)
        packing = emit.loop("step", sizes.steps, pack)
        return emit.allocate(rows, emit.sequence([packing, tiles]))

    def _pack_rows(
        self, packer: Packer, rows: Buffer, at: tuple[Expr, Expr, Expr], tile: int
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

    def _rows_place(self, step: Expr, part: int, at: int) -> Expr:
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

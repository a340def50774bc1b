"""Convolutions by tile products (such as AMX), as one of a convolution's algorithms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import attrs
import numpy as np
from chameleon_core.plugin_api import Arrays, DesignSpace

from chameleon_tvm import _emit as emit
from chameleon_tvm._device.targets import TargetInfo, target_info
from chameleon_tvm._emit import Expr, Stmt
from chameleon_tvm._instructions.selection import tile_products_of
from chameleon_tvm._instructions.tiles import DATA, SUMS, WEIGHTS, Register
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._open_axes import BATCH, HEIGHT, WIDTH, extent_of
from chameleon_tvm._operators.spec import FusedSpec
from chameleon_tvm._spaces.template import tile_tiling
from chameleon_tvm._spaces.template.algorithms import Algorithm, Layer
from chameleon_tvm._spaces.template.arithmetic import TileArithmetic, epilogue_constants
from chameleon_tvm._spaces.template.geometry import Geometry
from chameleon_tvm._spaces.template.input import Input
from chameleon_tvm._spaces.template.output import JoinedOutput, StoredOutput, TilePosition
from chameleon_tvm._spaces.template.tile_blocks import PartProducts, turns_of_products
from chameleon_tvm._spaces.template.tile_tiling import COPY, IN_PLACE
from chameleon_tvm._types import COMPUTE, FLOAT32

PARTS_PER_CORE = 4
"""Number of parts of the work per core. With more parts, setting up registers costs more. With
fewer parts, cores get less equal shares."""


PART_PRODUCTS: dict[tuple[int, int], PartProducts] = {
    (1, 1): [(0, 0)],
    (2, 1): [(0, 1), (None, 0)],
    (2, 2): [(1, 2), (0, 1), (None, 0)],
    (3, 1): [(0, 2), (None, 1), (None, 0)],
    (3, 3): [(2, 3), (1, None), (None, 1), (0, None), (None, 2), (None, 0)],
}
"""The products for each number of parts of the data and of the weights. A product is the part of
the weights and the part of the data to load before; None for a part that is in registers. Small
products come first. Part 2 of two and part 3 of three is the first one without infinities, see
``SplitInput``."""


class TileConvolution:
    """Writes the function of a convolution by tile products for one configuration."""

    def __init__(
        self,
        geometry: Geometry,
        block: tile_tiling.TileBlock,
        spec: FusedSpec,
        *,
        arithmetic: TileArithmetic,
        channels: int,
        info: TargetInfo,
    ) -> None:
        self.geometry = geometry
        self.block = block
        self.product = product = arithmetic.product
        self.info = info
        self.extents = (1, tile_tiling.joined_width(geometry)) if block.joined else geometry.out
        self.pitch = tile_tiling.column_pitch(geometry, product) if block.copy else geometry.ic
        self.runs = tile_tiling.Runs.of(geometry, product, separate=self.pitch > geometry.ic)
        sums = block.rows * block.columns * block.vectors * product.columns
        self.sums = emit.buffer("sums", (sums,), dtype=product.sums)
        output = JoinedOutput if block.joined else StoredOutput
        self.output = output(geometry, block, spec, self.sums)
        self.arithmetic = arithmetic
        self.channels = channels
        self.input = self._make_input()
        self.blocks = math.ceil(self.output.channels / self.output.block)
        self.together = tile_tiling.tiles_together(geometry, block.vectors, product)
        tiles = math.ceil(self.output.channels / (self.together * product.columns)) * self.together
        elements = tiles * self.runs.steps * self.runs.depth * product.columns
        elements *= arithmetic.weight_parts
        self.weights = emit.buffer("weights", (elements,), dtype=product.weights)
        source = self.input.copy_buffer if block.copy else self.input.data
        self.source = emit.buffer("pixels", (math.prod(source.shape),), dtype=product.data)
        self._alias = tirx.DeclBuffer(self.source, data=source.data)
        self.registers = self._make_registers()

    def _make_input(self) -> Input:
        return Input(
            self.geometry,
            self.geometry.ic,
            rows=True,
            arithmetic=self.arithmetic,
            channels=self.channels,
            zero_point=self.output.epilogue.zero_point,
            pitch=self.pitch,
        )

    def function(self) -> tirx.PrimFunc:
        """The complete function; parameters: data, packed weights, constants, [residual], out."""
        body = emit.sequence([self._alias, self._compute()])
        if self.block.copy:
            body = emit.allocate(
                self.input.copy_buffer, emit.sequence([self.input.make_copy(), body])
            )
        more = self.output.epilogue.parameters
        return emit.function([self.input.data, self.weights, *more, self.output.out], body)

    @property
    def _positions(self) -> tuple[Expr, Expr, Expr]:
        """Number of images, and of blocks of outputs down and across an image."""
        down = emit.divided(extent_of(HEIGHT, self.extents[0]), self.block.rows)
        columns = extent_of(WIDTH, self.extents[1])
        rows = extent_of(HEIGHT, self.geometry.out[0])
        if self.block.joined and not isinstance(rows, int):
            columns = tirx.min(rows * self.geometry.padded_size[1], self.extents[1])
        across = emit.divided(columns, self.block.columns)
        return extent_of(BATCH, self.geometry.batch), down, across

    def _compute(self) -> Stmt:
        positions = math.prod(self._positions)
        panels, panel, fits = self._panels(positions)
        extents = (panels, self.blocks, panel)
        count = math.prod(extents)
        parts = PARTS_PER_CORE * self.info.cores
        parts = min(count, parts) if isinstance(count, int) else parts

        def position(index: Expr) -> tuple[Expr, TilePosition]:
            """Whether an index is that of a block, and the block's position."""
            panel_index, channel, number = emit.split(index, extents)
            number = panel_index * panel + number
            exists = fits or number < positions
            return exists, self._position(emit.split(number, self._positions), channel)

        def part(index: Expr) -> Stmt:
            known = isinstance(count, int)
            first = emit.quotient(index * count, parts, known=known)
            rest = emit.quotient((index + 1) * count, parts, known=known) - first
            return self._blocks(rest, lambda number: position(first + number))

        return emit.parallel("part", parts, part)

    def _blocks(self, count: Expr, position: Callable[[Expr], tuple[Expr, TilePosition]]) -> Stmt:
        """Compute blocks of outputs one after another.

        Args:
            count: Number of blocks.
            position: Whether the block of a number exists, and its position.
        """

        def turn(number: Expr) -> Stmt:
            exists, at = position(number)
            existed, before = position(tirx.max(number, 1) - 1)
            # Sums that a tile has just stored arrive late, so the next products come first.
            return emit.sequence(
                [
                    emit.when(tirx.all(number < count, exists), self._multiply_block(at)),
                    emit.when(tirx.all(number > 0, existed), self.output.write(before)),
                    emit.when(tirx.all(number < count, exists), self._store_sums()),
                ]
            )

        body = emit.allocate(self.output.buffers, emit.loop("block", count + 1, turn))
        return self.product.around([*self.registers.values()], body)

    def _panels(self, positions: Expr) -> tuple[Expr, Expr, bool]:
        """The number of panels, the positions of each, and whether all panels are full.

        The positions of a panel share each block of weights before the next ones are read.
        """
        if not self.block.panels:
            panels, panel = (1, positions) if self.block.channels_outermost else (positions, 1)
            return panels, panel, True
        g, block = self.geometry, self.block
        down, across = (
            math.ceil(extent / size)
            for extent, size in zip(self.extents, (block.rows, block.columns), strict=True)
        )
        most = g.batch * down * across
        size = self.arithmetic.parts * tile_tiling.input_bytes(g, self.product)
        largest = tile_tiling.panel_positions(size / most, self.info.l2_bytes)
        panel = math.ceil(most / math.ceil(most / int(largest)))
        fits = isinstance(positions, int) and positions % panel == 0
        return emit.divided(positions, panel), panel, fits

    def _make_registers(self) -> dict[tuple[str, int], Register]:
        """The tile registers by contents and number; sums are numbered by pixels, then channels."""
        block, rows = self.block, {WEIGHTS: 0, SUMS: self.block.pixels, DATA: self.block.pixels}
        sums = block.tiles * block.vectors
        contents = [*((SUMS, tile) for tile in range(sums)), (DATA, 0), (WEIGHTS, 0)]
        return {
            key: self.product.register(number, key[0], rows[key[0]], self.runs.depth)
            for number, key in enumerate(contents)
        }

    def _position(self, position: list[Expr], channel: Expr) -> TilePosition:
        """The position of a block of outputs."""
        n, yo, xo = position
        return TilePosition(
            n=n,
            outer=(),
            group=0,
            block=channel,
            y=emit.tile_start(yo, self.block.rows, self.extents[0]),
            x=emit.tile_start(xo, self.block.columns, self.extents[1]),
            sums=(self.sums,),
            valid=np.ones((self.block.columns, self.geometry.kernel[1]), np.bool_),
        )

    def _multiply_block(self, at: TilePosition) -> Stmt:
        """Compute the sums of a block in registers."""
        zeros = [
            self.product.zero(register)
            for (holds, _), register in self.registers.items()
            if holds == SUMS
        ]
        return emit.sequence([*zeros, self._steps(at)])

    def _store_sums(self) -> Stmt:
        """Store the sums of a block for the epilogue."""
        block, product, width = self.block, self.product, self.output.block
        return emit.sequence(
            [
                product.store(
                    self.registers[SUMS, tile * block.vectors + v],
                    self.sums,
                    tile * block.pixels * width + v * product.columns,
                    width,
                )
                for tile in range(block.tiles)
                for v in range(block.vectors)
            ]
        )

    def _steps(self, at: TilePosition) -> Stmt:
        """Add the products of all pieces of all runs."""
        runs = self.runs

        def step(ry: Expr, run: Expr, piece: Expr) -> Stmt:
            number = emit.join((ry, run, piece), (runs.rows, runs.count, runs.pieces))
            return self._multiply(at, (ry, run, piece), number)

        extents = {"ry": runs.rows, "run": runs.count, "piece": runs.pieces}
        return emit.loops(extents, step)

    def _multiply(self, at: TilePosition, tap: tuple[Expr, Expr, Expr], step: Expr) -> Stmt:
        """Add the products of a piece of a run, for each pair of parts of the numbers."""
        statements = []
        arithmetic, block, registers = self.arithmetic, self.block, self.registers
        parts = PART_PRODUCTS[arithmetic.parts, arithmetic.weight_parts]
        for turn in turns_of_products(parts, block.tiles, block.vectors):
            if turn.weights is not None:
                statements.append(self._load_weights(at, step, turn.weights, turn.column))
            if turn.data is not None:
                statements.append(self._load_data(at, tap, turn.data, turn.row))
            sums = registers[SUMS, turn.row * block.vectors + turn.column]
            statements.append(self.product.product(sums, registers[DATA, 0], registers[WEIGHTS, 0]))
        return emit.sequence(statements)

    def _load_weights(self, at: TilePosition, step: Expr, part: int, v: int) -> Stmt:
        """Load a tile of a part of the weights of a step."""
        product, parts = self.product, self.arithmetic.weight_parts
        group = at.block
        if self.together == 1:
            first = emit.tile_start(at.block, self.output.block, self.output.channels)
            group, v = tirx.floordiv(first + product.columns - 1, product.columns) + v, 0
        first = (group * self.runs.steps + step) * parts + part
        start = (first * self.together + v) * (self.runs.depth * product.columns)
        register = self.registers[WEIGHTS, 0]
        return product.load(register, self.weights, start, register.width)

    def _load_data(
        self, at: TilePosition, tap: tuple[Expr, Expr, Expr], part: int, tile: int
    ) -> Stmt:
        """Load a tile of a part of the inputs of a piece of a run."""
        g, block = self.geometry, self.block
        ry, run, piece = tap
        yi, strip = divmod(tile, block.strips)
        row = (at.y + yi) * g.stride[0] + ry * g.dilation[0]
        column = (at.x + strip * block.pixels) * g.stride[1] + run * g.dilation[1]
        start = self._pixel(self._image(at.n, part), row, column) + piece * self.runs.depth
        stride = g.stride[1] * self.pitch
        return self.product.load(self.registers[DATA, 0], self.source, start, stride)

    def _image(self, n: Expr, part: int) -> Expr:
        """Index of an image in a part of the copy, or of the input."""
        del part  # numbers have a single part
        return n

    def _pixel(self, n: Expr, row: Expr, column: Expr) -> Expr:
        """Index of the first channel at a row and column of the padded input."""
        g = self.geometry
        if self.block.copy:
            rows, columns = g.padded_size
            return ((n * rows + row) * columns + column) * self.pitch
        return ((n * g.size[0] + row) * g.size[1] + column) * g.ic


class TileAlgorithm(Algorithm):
    """The tile-product algorithm of an operator: design space, functions and packed weights."""

    names: Sequence[str] = (tile_tiling.TILE_PRODUCTS,)

    def __init__(self, layer: Layer, arithmetic: TileArithmetic) -> None:
        self.arithmetic = arithmetic
        self.product = arithmetic.product
        self.instructions = (self.product,)
        self.channels = layer.geometry.ic
        flat = tile_tiling.flatten_image(attrs.evolve(layer.geometry, lanes=self.product.columns))
        self.geometry = attrs.evolve(flat, ic=tile_tiling.best_padded_channels(flat, self.product))
        self.spec = layer.spec
        self.info = target_info(layer.target)

    @classmethod
    def of(cls, layer: Layer) -> Self | None:
        kind = COMPUTE[layer.spec.dtype]
        if kind.name == FLOAT32 or not tile_tiling.supports(layer.geometry):
            return None
        products = tile_products_of(layer.target, data=kind.data.name, weights=kind.weights.name)
        fitting = [product for product in products if product.data == kind.data.storage_dtype]
        if not fitting:
            return None
        return cls(layer, TileArithmetic(product=fitting[0], data=kind.data))

    def space(self) -> DesignSpace:
        return tile_tiling.TileTiling(
            self.geometry, self.info, self.product, inputs=self._inputs, parts=self._parts
        ).space()

    @property
    def _parts(self) -> Mapping[str, tuple[int, int]]:
        """Numbers of parts of a number of the data and of a weight, by the algorithm's name."""
        return {tile_tiling.TILE_PRODUCTS: (1, 1)}

    @property
    def _inputs(self) -> Sequence[str]:
        """The forms of the input that tile products may read."""
        g = self.geometry
        in_place = g.layout == "NHWC" and g.ic == self.channels and not any(g.padded)
        return (COPY, IN_PLACE) if in_place else (COPY,)

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        return self._loops(values)(
            self.geometry,
            tile_tiling.TileBlock.of(values, self.geometry.ic),
            self.spec,
            arithmetic=self._arithmetic(values),
            channels=self.channels,
            info=self.info,
        ).function()

    def _loops(self, values: Mapping[str, Any]) -> type[TileConvolution]:
        """The class that writes the function of a configuration."""
        del values  # all configurations share one
        return TileConvolution

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        weights, *rest = constants
        vectors = values["product_vectors"]
        channels = max(self.geometry.oc, vectors * self.product.columns)
        arithmetic = self._arithmetic(values)
        more = epilogue_constants(weights, rest, 1, channels, arithmetic)
        numbers = arithmetic.weights(weights)
        together = tile_tiling.tiles_together(self.geometry, vectors, self.product)
        packed = tile_tiling.pack_tiles(numbers, self.geometry, together, self.product)
        runs = tile_tiling.Runs.of(self.geometry, self.product)
        step = packed.reshape(-1, together * runs.depth * self.product.columns)
        return [arithmetic.store_weights(step).reshape(-1), *more]

    def _arithmetic(self, values: Mapping[str, Any]) -> TileArithmetic:
        """The arithmetic of a configuration."""
        del values  # all configurations share one
        return self.arithmetic

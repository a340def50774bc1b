"""Convolutions and matrix products of float32 by tile products of bfloat16 (AMX).

A float32 number is a sum of bfloat16 numbers, its parts (Henry, Tang and Heinecke, "Leveraging the
bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations", 2019). With two parts,
three products of parts have 16 to 17 bits. With three parts, six products have the 24 bits of
float32. The sums are float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Self

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_tvm import _emit as emit
from chameleon_tvm._arrays import contiguous
from chameleon_tvm._emit import Buffer, Expr, Stmt
from chameleon_tvm._instructions.base import BFLOAT16_BITS
from chameleon_tvm._instructions.emission import intrinsic
from chameleon_tvm._instructions.selection import tile_products_of
from chameleon_tvm._instructions.tiles import TileProduct
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._open_axes import BATCH, WIDTH, extent_of
from chameleon_tvm._operators.layouts import channel_block, is_channels_last
from chameleon_tvm._spaces.template import tile_tiling
from chameleon_tvm._spaces.template.algorithms import Layer, allowed_names
from chameleon_tvm._spaces.template.arithmetic import TileArithmetic
from chameleon_tvm._spaces.template.geometry import Geometry
from chameleon_tvm._spaces.template.input import Input
from chameleon_tvm._spaces.template.options import ALGORITHM, SPLIT_PARTS
from chameleon_tvm._spaces.template.output import TilePosition
from chameleon_tvm._spaces.template.split_numbers import (
    LARGEST,
    TOO_LARGE,
    exact_parts_of,
    magnitude_of,
    parts_of,
    upper_half,
)
from chameleon_tvm._spaces.template.tile_algorithm import TileAlgorithm, TileConvolution
from chameleon_tvm._types import BFLOAT16, FLOAT32, STORAGE

_MANTISSA_RMS = 0.72
"""Root mean square of 1/m for mantissas m that are log-uniform in [1, 2)."""

FASTER_OUTPUTS = 4
"""Number of outputs of a channel from which tiles are faster than vectors. For fewer outputs, both
take the time to read weights, and vectors are more precise."""

_VECTOR = 16
"""Number of float32 numbers in a vector of AVX-512."""


@attrs.frozen(kw_only=True)
class SplitArithmetic(TileArithmetic):
    """Float32 numbers as sums of several bfloat16 numbers."""

    def store_weights(self, packed: NDArray[Any]) -> NDArray[Any]:
        """The parts of packed weights, of shape (steps, parts x elements of a step)."""
        half = STORAGE[BFLOAT16]
        rest = packed.astype(np.float32, copy=False)
        largest = half.real(np.array(LARGEST, np.uint16))
        parts = []
        for _ in range(self.weight_parts):
            part = half.stored(np.clip(rest, -largest, largest))
            rest = rest - half.real(part)
            parts.append(part)
        return contiguous(np.concatenate(parts, axis=1))


class SplitInput(Input):
    """The copy of a float32 input as bfloat16 parts, with one more part for infinities and NaN.

    An infinity times the low part of a weight has the wrong sign or is NaN. So low parts of weights
    multiply another first part, in which infinities and NaN are 0. The fast copy notices such
    numbers and numbers that round to infinity, and the copy is then made again.

    Attributes:
        exact: Whether the copy is made for such numbers.
        largest: The largest magnitudes of a row, as the bits of float32 numbers: registers of one
            lane and of ``width`` lanes.
        rows_largest: The largest magnitude of each row.
        width: Number of channels that are split at once.
        finite: Number of images between the first part and the part without infinities.
    """

    def __init__(
        self,
        geometry: Geometry,
        *,
        arithmetic: TileArithmetic,
        channels: int,
        pitch: int,
    ) -> None:
        super().__init__(
            geometry,
            geometry.ic,
            rows=False,
            arithmetic=arithmetic,
            channels=channels,
            parts=arithmetic.parts + 1,
            pitch=pitch,
        )
        self.parts = arithmetic.parts
        self.exact = False
        count = geometry.batch * self.blocks * geometry.planes * geometry.padded_size[0]
        self.width = _contiguous_channels(geometry.layout)
        self.largest = self._registers()
        self.rows_largest = emit.buffer("rows_largest", (count,), dtype="int32")
        self.finite = emit.buffer("finite", (1,), dtype="int32")

    def make_copy(self) -> Stmt:
        """Make the copy, and again if it has infinities, NaN or numbers that round to infinity."""
        count = math.prod(self._row_extents)
        fast = super().make_copy()
        self.exact = True
        exact = super().make_copy()
        self.exact = False
        self.largest = self._registers()
        (largest,) = emit.registers(1, 1, name="largest_of_all", dtype="int32")

        def compare(row: Expr) -> Stmt:
            return _keep_larger(largest, emit.load(self.rows_largest, [row]))

        clear = emit.assign(largest, tirx.const(0, "int32"))
        images = self.geometry.batch * self.parts
        exact_copy = emit.sequence(
            [exact, emit.store(self.finite, [0], tirx.const(images, "int32"))]
        )
        repeat = emit.branch(
            [(emit.read(largest) >= TOO_LARGE, exact_copy)],
            emit.store(self.finite, [0], tirx.const(0, "int32")),
        )
        statements = [clear, emit.loop("row", count, compare), repeat]
        comparison = emit.allocate(largest, emit.sequence(statements))
        return emit.allocate(self.rows_largest, emit.sequence([fast, comparison]))

    def _registers(self) -> dict[int, Buffer]:
        """Registers for magnitudes, by their number of lanes."""
        return {
            lanes: emit.registers(1, lanes, name=f"largest{lanes}_", dtype="int32")[0]
            for lanes in {1, self.width}
        }

    def _make_row(self, index: Expr) -> Stmt:
        # Each loop has registers of its own.
        self.largest = self._registers()
        row = super()._make_row(index)
        if self.exact:
            return row
        clear = [
            emit.assign(register, emit.zero(lanes, "int32"))
            for lanes, register in self.largest.items()
        ]
        lane_maxima = [
            intrinsic("int32", f"llvm.vector.reduce.smax.v{lanes}i32", emit.read(register))
            if lanes > 1
            else emit.read(register)
            for lanes, register in self.largest.items()
        ]
        store_largest = emit.store(self.rows_largest, [index], reduce(tirx.max, lane_maxima))
        body = emit.sequence([*clear, row, store_largest])
        return emit.allocate([*self.largest.values()], body)

    def _copy_channels(self, count: int, element: Callable[..., Stmt]) -> list[Stmt]:
        width = 1 if self.exact else self.width
        whole = count // width

        def channels(number: Expr) -> Stmt:
            return element(number * width, lanes=width)

        rest = super()._copy_channels(count - whole * width, lambda c: element(whole * width + c))
        return [emit.loop("c", whole, channels), *(rest if count % width else [])]

    def _store_padding(self, place: list[Expr]) -> Stmt:
        parts = self.parts + self.exact
        return self._store_parts(place, [tirx.const(0, "uint32")] * parts)

    def _store_element(self, place: list[Expr], value: Expr) -> Stmt:
        if self.exact:
            return self._store_parts(place, exact_parts_of(value, self.parts))
        stores = self._store_parts(place, parts_of(value, self.parts))
        register = self.largest[emit.lanes_of(value)]
        return emit.sequence([stores, _keep_larger(register, magnitude_of(value))])

    def _store_parts(self, place: list[Expr], parts: list[Expr]) -> Stmt:
        """Statement that stores parts of a number, each in its part of the copy."""
        n, *rest = place
        images = self.geometry.batch
        return emit.sequence(
            [
                emit.store(
                    self.copy_buffer,
                    [n + number * images, *rest],
                    upper_half(part),
                    emit.lanes_of(part),
                )
                for number, part in enumerate(parts)
            ]
        )


def _contiguous_channels(layout: str) -> int:
    """Number of neighbouring channels to split at once, which is two vectors of AVX-512 at most."""
    if is_channels_last(layout):
        return 2 * _VECTOR
    return _VECTOR if channel_block(layout) % _VECTOR == 0 < channel_block(layout) else 1


def _keep_larger(register: Buffer, magnitude: Expr) -> Stmt:
    """Statement that keeps the larger magnitudes."""
    return emit.assign(register, tirx.max(emit.read(register), magnitude))


class PanelInput(SplitInput):
    """The copy of a panel: neighbouring pixels, which an iteration of a parallel loop copies.

    Attributes:
        image: The image of the panel.
        start: The first pixel of the panel.
        rows: The number of pixels of the panel, if it depends on the call.
    """

    image: Expr = 0
    start: Expr = 0
    rows: Expr | None = None

    @property
    def _row_extents(self) -> tuple[Expr, int, int, Expr]:
        images, blocks, planes, rows = super()._row_extents
        return images, blocks, planes, rows if self.rows is None else self.rows

    def _each_row(self, count: Expr) -> Stmt:
        return emit.loop("row", count, self._make_row)

    def _indices(self, n: Expr, c: Expr, y: Expr, x: Expr) -> list[Expr]:
        return super()._indices(self.image + n, c, self.start + y, x)


class SplitConvolution(TileConvolution):
    """Writes the function of a convolution of float32 by products of bfloat16 tiles."""

    input: SplitInput

    def _make_input(self) -> SplitInput:
        g = self.geometry
        if g.kernel == (1, 1) and g.size == g.out and not any(g.padded):
            # Threads share the rows of a copy, so each pixel becomes a row.
            column = (math.prod(g.size), 1)
            g = attrs.evolve(g, size=column, out=column)
        copy = SplitInput(g, arithmetic=self.arithmetic, channels=self.channels, pitch=self.pitch)
        if g is not self.geometry:
            copy.axes = copy.axes[::-1]
        return copy

    def function(self) -> tirx.PrimFunc:
        more = self.output.epilogue.parameters
        parameters = [self.input.data, self.weights, *more, self.output.out]
        return emit.function(parameters, self._copy_and_compute())

    def _copy_and_compute(self) -> Stmt:
        body = emit.sequence([self.input.make_copy(), self._alias, self._compute()])
        return emit.allocate([self.input.copy_buffer, self.input.finite], body)

    def _multiply(self, at: TilePosition, tap: tuple[Expr, Expr, Expr], step: Expr) -> Stmt:
        # A step without parts is too short: prefetches make int8 up to a fifth slower.
        pixels = self.block.rows * self.block.columns
        each = math.ceil(pixels / self.runs.steps)
        prefetches = [
            self.output.prefetch(at, tirx.min(step * each + pixel, pixels - 1))
            for pixel in range(each)
        ]
        return emit.sequence([*prefetches, super()._multiply(at, tap, step)])

    def _image(self, n: Expr, part: int) -> Expr:
        if part == self.arithmetic.parts:
            return n + emit.load(self.input.finite, [0])
        return n + part * self.input.geometry.batch


class PanelConvolution(SplitConvolution):
    """A ``SplitConvolution`` of which each iteration splits the inputs that it reads.

    Inputs are still in L2 when they are read, and no other core reads them. Each output reads only
    its own pixel.
    """

    input: PanelInput

    def _make_input(self) -> PanelInput:
        whole = super()._make_input()
        parts = self.arithmetic.parts, self.arithmetic.weight_parts
        columns = self.block.columns
        pixels = tile_tiling.panel_pixels(self.geometry, self.product, self.info, columns, parts)
        self.pixels = int(pixels)
        if self._is_open:
            self.pixels = math.ceil(self.pixels / columns) * columns
        size = (self.pixels, 1)
        panel = PanelInput(
            attrs.evolve(whole.geometry, batch=1, size=size, out=size),
            arithmetic=self.arithmetic,
            channels=self.channels,
            pitch=self.pitch,
        )
        panel.data, panel.axes = whole.data, whole.axes
        return panel

    def _copy_and_compute(self) -> Stmt:
        width, batch = self.extents[1], extent_of(BATCH, self.geometry.batch)
        columns = self.block.columns
        panels, across = math.ceil(width / self.pixels), math.ceil(self.pixels / columns)
        called = extent_of(WIDTH, width)
        if self._is_open:
            # Threads share the pixels of a call, which may be fewer than those of a panel.
            total = emit.divided(called, columns)
            most = tirx.max(emit.divided(total, across), tirx.min(total, self.info.cores))
            across = emit.quotient(total + most - 1, most, known=False)
            panels = emit.quotient(total + across - 1, across, known=False)
        extents = self.blocks, across

        def panel(index: Expr) -> Stmt:
            self.input.image, number = emit.split(index, (batch, panels))
            self.input.start = emit.tile_start(number, self.pixels, width)
            if self._is_open:
                pixels = across * columns
                self.input.start = tirx.max(tirx.min(number * pixels, width - pixels), 0)
                self.input.rows = tirx.max(tirx.min(pixels, called - self.input.start), 0)
            blocks = self._blocks(math.prod(extents), position)
            body = emit.sequence([self.input.make_copy(), self._alias, blocks])
            return emit.allocate([self.input.copy_buffer, self.input.finite], body)

        def position(index: Expr) -> tuple[Expr, TilePosition]:
            if self.block.channels_outermost:
                channel, number = emit.split(index, extents)
            else:
                number, channel = emit.split(index, extents[::-1])
            at = self._position([self.input.image, 0, 0], channel)
            first = self.input.start + emit.tile_start(number, columns, self.pixels)
            if self._is_open:
                first = tirx.min(first, width - columns)
            return True, attrs.evolve(at, x=first)

        return emit.parallel("panel", batch * panels, panel)

    @property
    def _is_open(self) -> bool:
        """Whether a call may compute a part of the pixels."""
        return not isinstance(extent_of(WIDTH, self.extents[1]), int)

    def _image(self, n: Expr, part: int) -> Expr:
        del n
        return super()._image(0, part)

    def _pixel(self, n: Expr, row: Expr, column: Expr) -> Expr:
        del row  # the image is a row
        return (n * self.pixels + column - self.input.start) * self.pitch


def fills_tile(geometry: Geometry, product: TileProduct) -> bool:
    """Whether a convolution has enough channels and products to fill tiles of weights.

    Tiles of few outputs take as long as vectors: reading weights takes most of the time.
    """
    return geometry.oc >= product.columns and geometry.ic * geometry.taps >= product.depth


def split_error(parts: int, *, exact: bool = False) -> float:
    """The expected relative error of a product of float32 numbers as sums of bfloat16 parts.

    Each part leaves a remainder that is uniform up to half a unit in its last place. The error
    consists of the remainders of both factors, and of the products that are left out. If bfloat16
    holds the weights exactly, only the remainder of the data is left.
    """
    rest = _MANTISSA_RMS * STORAGE[BFLOAT16].rounding / math.sqrt(3.0)
    return (1.0 if exact else math.sqrt(parts + 1.0)) * rest**parts


def split_product_of(target: str) -> TileProduct | None:
    """The fastest tile product of bfloat16 that a target has.

    Plugins are left out, because workers load none for float32 operators.
    """
    products = tile_products_of(target, data=BFLOAT16, weights=BFLOAT16, plugins=False)
    return next((product for product in products if product.data == BFLOAT16_BITS), None)


class SplitAlgorithm(TileAlgorithm):
    """Algorithms of float32 products by tiles of bfloat16: ``split3`` and ``split6``.

    Attributes:
        exact: Whether bfloat16 holds the weights exactly, so that they have one part. Two and three
            products then replace three and six.
    """

    exact: bool

    @classmethod
    def of(cls, layer: Layer) -> Self | None:
        spec = layer.spec
        exact = spec.exact_weights == BFLOAT16
        names = allowed_names(
            layer.options,
            SPLIT_PARTS,
            lambda parts: spec.cancellation * split_error(parts, exact=exact),
        )
        if not names or layer.spec.dtype != FLOAT32 or not tile_tiling.supports(layer.geometry):
            return None
        product = split_product_of(layer.target)
        if product is None or not fills_tile(layer.geometry, product):
            return None
        split = cls(layer, SplitArithmetic(product=product))
        split.names, split.exact = names, exact
        outputs = layer.geometry.batch * math.prod(layer.geometry.out)
        split.preferred = outputs >= FASTER_OUTPUTS
        return split

    @property
    def _parts(self) -> Mapping[str, tuple[int, int]]:
        parts = {name: SPLIT_PARTS[name] for name in self.names}
        return {name: (count, 1 if self.exact else count) for name, count in parts.items()}

    @property
    def _inputs(self) -> Sequence[str]:
        g = self.geometry
        own = g.kernel == (1, 1) and g.size == g.out and g.out[0] == 1 and not any(g.padded)
        return (tile_tiling.COPY, tile_tiling.BY_PANEL) if own else (tile_tiling.COPY,)

    def _loops(self, values: Mapping[str, Any]) -> type[TileConvolution]:
        by_panel = values["product_input"] == tile_tiling.BY_PANEL
        return PanelConvolution if by_panel else SplitConvolution

    def work(self, values: Mapping[str, Any]) -> float:
        return tile_tiling.PRODUCTS_OF_PARTS[self._parts[values[ALGORITHM]]]

    def _arithmetic(self, values: Mapping[str, Any]) -> TileArithmetic:
        parts, weight_parts = self._parts[values[ALGORITHM]]
        return attrs.evolve(self.arithmetic, parts=parts, weight_parts=weight_parts)

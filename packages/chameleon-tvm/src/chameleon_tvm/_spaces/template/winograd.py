"""Winograd's convolution as a TensorIR function: 3x3 filters, stride 1, output in NHWC.

For each block of tiles, the function transforms the inputs. Then, for each block of output
channels, it computes one matrix product per point of the transform, transforms the products and
applies the epilogue. A workspace that fits L2 holds the values between these steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
from chameleon_core.plugin_api import Arrays, DesignSpace
from numpy.typing import NDArray

from chameleon_tvm import _emit as emit
from chameleon_tvm._arrays import contiguous
from chameleon_tvm._device.targets import TargetInfo, target_info
from chameleon_tvm._emit import Expr, Stmt
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._open_axes import BATCH, HEIGHT, WIDTH, extent_of
from chameleon_tvm._operators.convolution_specs import ConvolutionSpec
from chameleon_tvm._operators.spec import FusedSpec
from chameleon_tvm._spaces.template.algorithms import Algorithm, Layer, allowed_names
from chameleon_tvm._spaces.template.epilogues import VectorEpilogue
from chameleon_tvm._spaces.template.geometry import Geometry, block_diagonal, overlapping_blocks
from chameleon_tvm._spaces.template.options import WINOGRAD_TILES
from chameleon_tvm._spaces.template.winograd_tiling import (
    WinogradTile,
    WinogradTiling,
    supports_winograd,
    tile_counts,
    winograd_tile,
)
from chameleon_tvm._spaces.template.winograd_transforms import (
    TAPS,
    VectorCode,
    transforms,
    winograd_error,
)
from chameleon_tvm._types import FLOAT32


class WinogradConvolution:
    """Writes the function of Winograd's convolution for one configuration."""

    def __init__(self, geometry: Geometry, tile: WinogradTile, spec: FusedSpec) -> None:
        g = geometry
        self.geometry = g
        self.tile = tile
        self.matrices = transforms(tile.out)
        self.counts = self._called_counts()
        self.tiles: Expr = math.prod(self.counts)
        self.position_blocks = emit.divided(self.tiles, tile.block)
        self.block = tile.vectors * g.lanes
        self.blocks = math.ceil(g.oc / self.block)
        shape = (g.batch, *g.out, g.oc)
        self.channels_first = g.layout == "NCHW"
        self.images = emit.buffer("data", (g.batch, g.ic, *g.size))
        # If the input has channels first, the kernel reads a copy with channels last.
        self.data = emit.buffer(
            "staged" if self.channels_first else "data", (g.batch, *g.size, g.ic)
        )
        self.weights = emit.buffer("weights", (self.blocks, self.matrices.points, g.ic, self.block))
        self.out = emit.buffer("out", shape)
        self.epilogue = VectorEpilogue(spec, g.oc, shape)
        # Rows are padded by a vector, because rows at a power of two would share cache sets.
        most = math.prod(tile_counts(g, tile.out))
        if not self._is_whole:  # the last block of a call may have other tiles after its own
            most += tile.block
        slots = most if tile.shared else tile.block
        self.inputs = emit.buffer("inputs", (self.matrices.points, slots, g.ic + g.lanes))
        self.products = emit.buffer(
            "products", (tile.block, tile.vectors, self.matrices.points, g.lanes)
        )
        self.patch = emit.buffer("patch", (self.matrices.size, self.matrices.size, g.lanes))

    def _called_counts(self) -> tuple[Expr, Expr, Expr]:
        """Number of images of a call, of tiles of outputs down an image, and of tiles across it."""
        g, out = self.geometry, self.tile.out
        down = emit.divided(extent_of(HEIGHT, g.out[0]), out)
        across = emit.divided(extent_of(WIDTH, g.out[1]), out)
        return extent_of(BATCH, g.batch), down, across

    @property
    def _is_whole(self) -> bool:
        """Whether all calls compute all tiles."""
        return isinstance(self.tiles, int)

    def _first_tile(self, position: Expr) -> Expr:
        """The first tile of a block."""
        if isinstance(self.tiles, int):
            return emit.tile_start(position, self.tile.block, self.tiles)
        return position * self.tile.block

    def _tiles_from(self, first: Expr) -> Expr:
        """Number of tiles of the block that begins with a tile."""
        if self._is_whole:
            return self.tile.block
        return tirx.min(self.tiles - first, self.tile.block)

    def function(self) -> tirx.PrimFunc:
        """The complete function; parameters: data, packed weights, [bias], [residual], out."""
        body = self._shared_inputs() if self.tile.shared else self._private_inputs()
        data = self.data
        if self.channels_first:
            data, body = self.images, emit.allocate(self.data, emit.sequence([self._copy(), body]))
        parameters = [data, self.weights, *self.epilogue.parameters, self.out]
        return emit.function(parameters, body)

    def _copy(self) -> Stmt:
        """Copy all images to a layout with channels last."""
        g = self.geometry
        height, width = g.size
        images = self.counts[0]

        def row(index: Expr) -> Stmt:
            n, y = emit.split(index, (images, height))

            def element(x: Expr, c: Expr) -> Stmt:
                return emit.store(self.data, [n, y, x, c], emit.load(self.images, [n, c, y, x]))

            return emit.loops({"x": width, "c": g.ic}, element)

        return emit.parallel("row", images * height, row)

    def _shared_inputs(self) -> Stmt:
        """Transform all inputs, then loop over blocks of channels and of tiles."""
        extents = (self.blocks, self.position_blocks)

        def body(index: Expr) -> Stmt:
            block, position = emit.split(index, extents)
            first = self._first_tile(position)
            return emit.allocate(self.products, self._channels(block, first, first))

        transform = emit.parallel(
            "tile", self.tiles, lambda t: emit.allocate(self.patch, self._transform(t, t))
        )
        multiply = emit.parallel("block", math.prod(extents), body)
        return emit.allocate(self.inputs, emit.sequence([transform, multiply]))

    def _private_inputs(self) -> Stmt:
        """Loop over blocks of tiles, each of which transforms its own inputs."""

        def body(index: Expr) -> Stmt:
            first = self._first_tile(index)
            tiles = self._tiles_from(first)
            transform = emit.loop("tile", tiles, lambda t: self._transform(first + t, t))
            multiply = emit.loop("block", self.blocks, lambda b: self._channels(b, first, 0))
            both = emit.sequence([transform, multiply])
            return emit.allocate((self.inputs, self.products, self.patch), both)

        return emit.parallel("tiles", self.position_blocks, body)

    # -- inputs -----------------------------------------------------------------------------

    def _transform(self, t: Expr, slot: Expr) -> Stmt:
        """Transform all channels of a tile of inputs to position ``slot`` of the workspace."""
        g, out = self.geometry, self.tile.out
        n, down, across = emit.split(t, self.counts)
        corner = [n, down * out - g.pads[0], across * out - g.pads[1]]
        return emit.hoist(corner, lambda n, y, x: self._transform_at(n, y, x, slot))

    def _transform_at(self, n: Expr, y: Expr, x: Expr, slot: Expr) -> Stmt:
        """Transform the tile of inputs whose corner is at row ``y`` and column ``x``."""
        g, size = self.geometry, self.matrices.size

        def read(i: Expr, j: Expr, channel: Expr) -> Expr:
            return emit.load(self.data, [n, y + i, x + j, channel], g.lanes)

        def inside(channel: Expr) -> Stmt:
            return self._forward(lambda i, j: read(i, j, channel), slot, channel)

        def at_border(channel: Expr) -> Stmt:
            def element(i: Expr, j: Expr) -> Stmt:
                conditions = _inside(y + i, g.size[0]) + _inside(x + j, g.size[1])
                copied = emit.store(self.patch, [i, j, 0], read(i, j, channel), g.lanes)
                blank = emit.store(self.patch, [i, j, 0], emit.zero(g.lanes), g.lanes)
                return emit.branch([(tirx.all(*conditions), copied)], blank)

            fill = emit.loops({"i": size, "j": size}, element)
            padded = self._forward(
                lambda i, j: emit.load(self.patch, [i, j, 0], g.lanes), slot, channel
            )
            return emit.sequence([fill, padded])

        def each_vector(body: Callable[[Expr], Stmt]) -> Stmt:
            return emit.loop("v", g.ic // g.lanes, lambda v: body(v * g.lanes))

        inside_bounds = [y >= 0, y + size <= g.size[0], x >= 0, x + size <= g.size[1]]
        return emit.branch(
            [(tirx.all(*inside_bounds), each_vector(inside))], each_vector(at_border)
        )

    def _forward(self, read: Callable[[int, int], Expr], slot: Expr, channel: Expr) -> Stmt:
        """The transform ``B^T d B`` of one vector of channels of a tile of inputs."""
        g, size = self.geometry, self.matrices.size
        code = VectorCode(g.lanes)
        points = code.transform(self.matrices.data, code.load_tile(size, read))
        return code.finish(
            [
                emit.store(self.inputs, [i * size + j, slot, channel], points[i][j], g.lanes)
                for i in range(size)
                for j in range(size)
            ]
        )

    # -- products ---------------------------------------------------------------------------

    def _channels(self, block: Expr, first: Expr, slot: Expr) -> Stmt:
        """A block of output channels of a block of tiles, whose inputs start at ``slot``."""
        tile = self.tile

        def point(p: Expr) -> Stmt:
            return emit.loop("s", tile.steps, lambda s: self._multiply(block, p, slot, s))

        multiply = emit.loop("p", self.matrices.points, point)
        count = self._tiles_from(first)
        outputs = emit.loop("t", count, lambda t: self._write(block, first + t, t))
        return emit.sequence([multiply, outputs])

    def _multiply(self, block: Expr, p: Expr, slot: Expr, s: Expr) -> Stmt:
        """The product of ``rows`` tiles of inputs and a block of weights, for one point."""
        g, tile = self.geometry, self.tile
        sums = emit.registers(tile.rows * tile.vectors, g.lanes)
        start = s * tile.rows

        def channel(c: Expr) -> list[Stmt]:
            columns = [
                emit.load(self.weights, [block, p, c, v * g.lanes], g.lanes)
                for v in range(tile.vectors)
            ]
            statements = []
            for row in range(tile.rows):
                value = emit.load(self.inputs, [p, slot + start + row, c])
                for v, weight in enumerate(columns):
                    into = sums[row * tile.vectors + v]
                    total = emit.read(into) + emit.splat(value, g.lanes) * weight
                    statements.append(emit.assign(into, total))
            return statements

        def unrolled(c: Expr) -> Stmt:
            channels = range(tile.unroll)
            return emit.sequence([stmt for u in channels for stmt in channel(c * tile.unroll + u)])

        clear = [emit.assign(total, emit.zero(g.lanes)) for total in sums]
        reduce = emit.loop("c", g.ic // tile.unroll, unrolled)
        stores = []
        for number, total in enumerate(sums):
            row, v = divmod(number, tile.vectors)
            index = [start + row, v, p, 0]
            stores.append(emit.store(self.products, index, emit.read(total), g.lanes))
        return emit.allocate(sums, emit.sequence([*clear, reduce, *stores]))

    # -- outputs ----------------------------------------------------------------------------

    def _write(self, block: Expr, t: Expr, slot: Expr) -> Stmt:
        """Transform a block of channels of a tile of outputs, apply the epilogue and store it."""
        n, down, across = emit.split(t, self.counts)
        start = emit.tile_start(block, self.block, self.geometry.oc)
        corner = [n, down * self.tile.out, across * self.tile.out, start]
        return emit.hoist(corner, lambda n, y, x, c: self._write_at(n, y, x, c, slot))

    def _write_at(self, n: Expr, y: Expr, x: Expr, start: Expr, slot: Expr) -> Stmt:
        """Write the tile of outputs at row ``y`` and column ``x``, from channel ``start``."""
        g, size = self.geometry, self.matrices.size

        def unrolled(v: Expr) -> Stmt:
            code = VectorCode(g.lanes)
            tile = code.load_tile(
                size, lambda i, j: emit.load(self.products, [slot, v, i * size + j, 0], g.lanes)
            )
            channel = start + v * g.lanes
            stores = []
            for i, row in enumerate(code.transform(self.matrices.output, tile)):
                line = []
                for j, value in enumerate(row):
                    index = [n, y + i, x + j, channel]
                    finished = self.epilogue.apply(value, channel, index, g.lanes)
                    store = emit.store(self.out, index, finished, g.lanes)
                    line.append(self._guard(store, x + j, j, axis=1))
                stores.append(self._guard(emit.sequence(line), y + i, i, axis=0))
            return code.finish(stores)

        return emit.loop("v", self.tile.vectors, unrolled)

    def _guard(self, statement: Stmt, index: Expr, offset: int, *, axis: int) -> Stmt:
        """A store, with a condition if a tile may reach beyond the output."""
        extent = self.geometry.out[axis]
        if 0 <= (extent - 1) % self.tile.out >= offset:
            return statement
        return emit.when(index < extent, statement)


def _inside(index: Expr, extent: int) -> list[Expr]:
    return [index >= 0, index < extent]


def transform_weights(weights: NDArray[np.float32], out: int) -> NDArray[np.float32]:
    """Apply Winograd's transform ``G g G^T`` to weights, in float64; shape (points, I, O)."""
    matrices = transforms(out)
    # As one product with the Kronecker square of G: a filter is a column of nine taps.
    taps = weights.transpose(2, 3, 1, 0).reshape(TAPS * TAPS, -1).astype(np.float64)
    transformed = (np.kron(matrices.weights, matrices.weights) @ taps).astype(np.float32)
    return transformed.reshape(matrices.points, weights.shape[1], weights.shape[0])


def pack_transformed(
    transformed: NDArray[np.float32], geometry: Geometry, tile: WinogradTile
) -> NDArray[np.float32]:
    """Arrange transformed weights (points, I, O) as the inner loops read them.

    The shape is (blocks of output channels, points, input channels, channels of a block).
    """
    block = tile.vectors * geometry.lanes
    starts = overlapping_blocks(geometry.oc, block)[:, 0]
    parts = [transformed[:, :, start : start + block] for start in starts.tolist()]
    return contiguous(np.stack(parts))


class WinogradAlgorithm(Algorithm):
    """Winograd's algorithms F(2x2, 3x3) and F(4x4, 3x3) of a convolution."""

    def __init__(self, geometry: Geometry, spec: ConvolutionSpec, info: TargetInfo) -> None:
        self.geometry = geometry
        self.spec = spec
        self.info = info
        self._transformed: dict[int, tuple[NDArray[np.float32], NDArray[np.float32]]] = {}

    @classmethod
    def of(cls, layer: Layer) -> Self | None:
        geometry, spec = layer.direct, layer.spec
        if not isinstance(spec, ConvolutionSpec) or spec.dtype != FLOAT32:
            return None
        if not supports_winograd(geometry):
            return None
        names = allowed_names(
            layer.options, WINOGRAD_TILES, lambda out: winograd_error(out, geometry.ic, spec)
        )
        if not names:
            return None
        winograd = cls(geometry, spec, target_info(layer.target))
        winograd.names = names
        return winograd

    def space(self) -> DesignSpace:
        return WinogradTiling(self.geometry, self.info, self.names).space()

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        return WinogradConvolution(self.geometry, winograd_tile(values), self.spec).function()

    def work(self, values: Mapping[str, Any]) -> float:
        out = winograd_tile(values).out
        return transforms(out).points / (out**2 * math.prod(self.geometry.kernel))

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        weights, *bias = constants
        tile = winograd_tile(values)
        transformed = self._transform(weights, tile.out)
        return [pack_transformed(transformed, self.geometry, tile), *bias]

    def _transform(self, weights: NDArray[np.float32], out: int) -> NDArray[np.float32]:
        """Transformed weights, cached: all configurations of a tuner use the same weights."""
        cached = self._transformed.get(out)
        if cached is None or cached[0] is not weights:
            groups = self.spec.group_count
            dense = block_diagonal(weights, groups, groups)
            planar = dense.reshape(*dense.shape[:2], *self.geometry.kernel)
            cached = self._transformed[out] = (weights, transform_weights(planar, out))
        return cached[1]

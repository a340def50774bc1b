"""Convolutions of channels-first images, in which vectors are neighbouring outputs of a row.

Loops, from the outermost: images, groups and bands of rows (parallel); blocks of output channels;
tiles; input channels; taps. A padded copy of the band's input stays in L1 or L2. Nothing is
transposed. The pixels of a 1x1 convolution form a single axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import attrs
from chameleon_core.plugin_api import Arrays, DesignSpace
from numpy.typing import NDArray

from chameleon_tvm import _emit as emit
from chameleon_tvm._arrays import contiguous
from chameleon_tvm._device.targets import TargetInfo, target_info
from chameleon_tvm._emit import Buffer, Expr, Stmt
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._open_axes import BATCH, HEIGHT, WIDTH, extent_of
from chameleon_tvm._operators.convolution_specs import ConvolutionSpec
from chameleon_tvm._spaces.template.algorithms import Algorithm, Layer
from chameleon_tvm._spaces.template.epilogues import VectorEpilogue
from chameleon_tvm._spaces.template.geometry import Geometry, overlapping_blocks
from chameleon_tvm._spaces.template.planar_tiling import (
    PLANAR,
    PlanarTile,
    PlanarTiling,
    input_rows,
    planar_geometry,
)
from chameleon_tvm._types import FLOAT32

_UNROLLED = 16
"""Largest number of taps whose products are all straight-line code. In larger filters, only the
products of a row of taps are."""


class PlanarConvolution:
    """Writes the function of a convolution with the sizes of ``planar_geometry``."""

    def __init__(self, geometry: Geometry, tile: PlanarTile, spec: ConvolutionSpec) -> None:
        g = geometry
        self.geometry, self.tile = g, tile
        self.columns = tile.vectors * g.lanes
        self.blocks = math.ceil(g.oc / tile.channels)
        shape = (g.batch, g.groups * g.oc, *g.out)
        self.data = emit.buffer("data", (g.batch, g.groups * g.ic, *g.size))
        taps = g.ic * g.taps
        self.weights = emit.buffer("weights", (g.groups * self.blocks, taps, tile.channels))
        self.out = emit.buffer("out", shape)
        self.epilogue = VectorEpilogue(spec, g.groups * g.oc, shape)
        # Columns at the distance of the stride are stored side by side, so that a vector can load
        # them.
        self.pitch = math.ceil(self._input_columns / g.stride[1])
        rows = input_rows(g, tile.band_rows)
        self.staged = emit.buffer("staged", (g.ic, rows, g.stride[1] * self.pitch))

    @property
    def _input_columns(self) -> int:
        """Columns of the padded input that a band's row reads."""
        g = self.geometry
        return (self.tile.band_columns - 1) * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1] + 1

    def function(self) -> tirx.PrimFunc:
        """The complete function; parameters: data, packed weights, [bias], [residual], out."""
        g, tile = self.geometry, self.tile
        down = emit.divided(extent_of(HEIGHT, g.out[0]), tile.band_rows)
        across = emit.divided(extent_of(WIDTH, g.out[1]), tile.band_columns)
        extents = (extent_of(BATCH, g.batch), g.groups, down, across)

        def body(index: Expr) -> Stmt:
            n, group, yo, xo = emit.split(index, extents)
            y = emit.tile_start(yo, tile.band_rows, g.out[0])
            x = emit.tile_start(xo, tile.band_columns, g.out[1])
            products = self._band(n, group, y, x)
            if not tile.copy:
                return products
            copy_statement = self._copy(
                n, group, y * g.stride[0] - g.pads[0], x * g.stride[1] - g.pads[1]
            )
            return emit.allocate(self.staged, emit.sequence([copy_statement, products]))

        parameters = [self.data, self.weights, *self.epilogue.parameters, self.out]
        return emit.function(parameters, emit.parallel("band", math.prod(extents), body))

    # -- inputs -----------------------------------------------------------------------------

    def _copy(self, n: Expr, group: Expr, top: Expr, left: Expr) -> Stmt:
        """Copy the input of a band from row ``top`` and column ``left``, padding included."""
        g = self.geometry
        _, rows, _ = (int(extent) for extent in self.staged.shape)

        def phase_columns(c: Expr, row: Expr, phase: int) -> Stmt:
            def inside(p: Expr) -> Stmt:
                column = p * g.stride[1] + phase + left
                value = emit.load(self.data, [n, group * g.ic + c, top + row, column])
                return emit.store(self.staged, [c, row, phase * self.pitch + p], value)

            first, end = 0, self.pitch
            if self.tile.band_columns == g.out[1]:
                # If a band has whole rows, its borders are known. Bands of parts of rows are only
                # for 1x1 convolutions, and have no borders.
                before, size = g.pads[1] - phase, g.size[1]
                first = min(end, max(0, math.ceil(before / g.stride[1])))
                end = max(first, min(end, math.ceil((size + before) / g.stride[1])))
            padding = [(0, first), (end, self.pitch - end)]
            return emit.sequence(
                [
                    *(
                        self._zeros(c, row, phase * self.pitch + at, count)
                        for at, count in padding
                        if count
                    ),
                    emit.loop("p", end - first, inside, start=first),
                ]
            )

        def line(c: Expr, row: Expr) -> Stmt:
            copy_statement = emit.sequence(
                [phase_columns(c, row, phase) for phase in range(g.stride[1])]
            )
            if not g.padded[0]:
                return copy_statement
            y = top + row
            zeros = self._zeros(c, row, 0, g.stride[1] * self.pitch)
            return emit.branch([(tirx.all(y >= 0, y < g.size[0]), copy_statement)], zeros)

        return emit.loops({"c": g.ic, "row": rows}, line)

    def _zeros(self, c: Expr, row: Expr, start: int, count: int) -> Stmt:
        return emit.loop(
            "z", count, lambda z: emit.store(self.staged, [c, row, start + z], emit.zero())
        )

    def _input(self, at: _Position, c: Expr, tap: tuple[Expr, int], row: int, v: int) -> Expr:
        """A vector of inputs: those of one tap for neighbouring outputs of a row."""
        g = self.geometry
        ry, rx = tap
        y = (at.y + row) * g.stride[0] + ry * g.dilation[0]
        phase, offset = rx * g.dilation[1] % g.stride[1], rx * g.dilation[1] // g.stride[1]
        if self.tile.copy:
            column = phase * self.pitch + at.x + offset + v * g.lanes
            return emit.load(self.staged, [c, y, column], g.lanes)
        column = at.left + at.x + offset + v * g.lanes
        place = [at.n, at.group * g.ic + c, at.top * g.stride[0] + y, column]
        return emit.load(self.data, place, g.lanes)

    # -- products ---------------------------------------------------------------------------

    def _band(self, n: Expr, group: Expr, top: Expr, left: Expr) -> Stmt:
        tile = self.tile
        extents = {
            "block": self.blocks,
            "yo": math.ceil(tile.band_rows / tile.rows),
            "xo": emit.divided(extent_of(WIDTH, tile.band_columns), self.columns),
        }

        def body(block: Expr, yo: Expr, xo: Expr) -> Stmt:
            position = _Position(
                n=n,
                group=group,
                top=top,
                left=left,
                block=block,
                y=emit.tile_start(yo, tile.rows, tile.band_rows),
                x=emit.tile_start(xo, self.columns, tile.band_columns),
            )
            return self._tile(position)

        return emit.loops(extents, body)

    def _tile(self, at: _Position) -> Stmt:
        g, tile = self.geometry, self.tile
        positions = list(itertools.product(range(tile.rows), range(tile.vectors)))
        sums = emit.registers(len(positions) * tile.channels, g.lanes)
        kh, kw = g.kernel

        def products(c: Expr, taps: Sequence[tuple[Expr, int]]) -> Stmt:
            statements = []
            for ry, rx in taps:
                values = [self._input(at, c, (ry, rx), row, v) for row, v in positions]
                tap = emit.join((c, ry, rx), (g.ic, kh, kw))
                for o in range(tile.channels):
                    block = at.group * self.blocks + at.block
                    weight = emit.splat(emit.load(self.weights, [block, tap, o]), g.lanes)
                    for number, value in enumerate(values):
                        into = sums[number * tile.channels + o]
                        statements.append(emit.assign(into, emit.read(into) + value * weight))
            return emit.sequence(statements)

        def channel(c: Expr) -> Stmt:
            if kh * kw <= _UNROLLED:
                return products(c, list(itertools.product(range(kh), range(kw))))
            return emit.loop("ry", kh, lambda ry: products(c, [(ry, rx) for rx in range(kw)]))

        clear = [emit.assign(total, emit.zero(g.lanes)) for total in sums]
        reduce = emit.loop("c", g.ic, channel)
        return emit.allocate(
            sums, emit.sequence([*clear, reduce, *self._stores(at, positions, sums)])
        )

    def _stores(
        self, at: _Position, positions: Sequence[tuple[int, int]], sums: Sequence[Buffer]
    ) -> list[Stmt]:
        """Statements that apply the epilogue to a tile and store it."""
        g, tile = self.geometry, self.tile
        first = at.group * g.oc + emit.tile_start(at.block, tile.channels, g.oc)
        stores = []
        for number, (row, v) in enumerate(positions):
            for o in range(tile.channels):
                value = emit.read(sums[number * tile.channels + o])
                if self.epilogue.bias is not None:
                    bias = emit.load(self.epilogue.bias, [first + o])
                    value = value + emit.splat(bias, g.lanes)
                column = at.left + at.x + v * g.lanes
                index = [at.n, first + o, at.top + at.y + row, column]
                value = self.epilogue.finish(value, index, g.lanes)
                stores.append(emit.store(self.out, index, value, g.lanes))
        return stores


@attrs.frozen(kw_only=True, eq=False)
class _Position:
    """The position of a tile; ``y`` and ``x`` count from the band's ``top`` and ``left``."""

    n: Expr
    group: Expr
    top: Expr
    left: Expr
    block: Expr
    y: Expr
    x: Expr


@attrs.frozen(kw_only=True, eq=False)
class PlanarAlgorithm(Algorithm):
    """The planar algorithm of a convolution, with the sizes of ``planar_geometry``."""

    names = (PLANAR,)
    preferred = False

    geometry: Geometry
    spec: ConvolutionSpec
    info: TargetInfo

    @classmethod
    def of(cls, layer: Layer) -> Self | None:
        spec = layer.spec
        if not isinstance(spec, ConvolutionSpec) or spec.dtype != FLOAT32:
            return None
        planar = planar_geometry(layer.geometry)
        info = target_info(layer.target)
        return None if planar is None else cls(geometry=planar, spec=spec, info=info)

    def space(self) -> DesignSpace:
        return PlanarTiling(self.geometry, self.info).space()

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        tile = PlanarTile.of(values, self.geometry)
        return PlanarConvolution(self.geometry, tile, self.spec).function()

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        weights, *bias = constants
        block = values["planar_channels"]
        return [_pack(weights, self.geometry, block), *bias]


def _pack(weights: NDArray[Any], geometry: Geometry, block: int) -> NDArray[Any]:
    """Weights in the order of the inner loops: (groups and blocks, channels and taps, a block)."""
    g = geometry
    grouped = weights.reshape(g.groups, g.oc, -1)
    blocked = grouped[:, overlapping_blocks(g.oc, block)]
    return contiguous(blocked.transpose(0, 1, 3, 2)).reshape(-1, g.ic * g.taps, block)

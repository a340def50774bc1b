"""The register-tiled direct convolution as a TensorIR function.

Loops, from the outermost: tiles (parallel, fused); block of input channels; taps of outer axes, ry,
rx; channel. The rest is straight-line code, and the tile's sums stay in vector registers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Buffer, Expr, Stmt
from chameleon_tvm._instructions.emission import with_preludes
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._open_axes import BATCH, HEIGHT, WIDTH, extent_of
from chameleon_tvm._operators.matmul_specs import BatchMatmulSpec
from chameleon_tvm._operators.spec import FusedSpec
from chameleon_tvm._spaces.template.arithmetic import FLOAT32_ARITHMETIC, Arithmetic
from chameleon_tvm._spaces.template.geometry import Geometry, Tile, tap_patterns, valid_taps
from chameleon_tvm._spaces.template.input import Input
from chameleon_tvm._spaces.template.output import Output, TilePosition

Tap = tuple[Expr, tuple[Expr, ...], Expr, Expr]
"""A tap of a filter: block of input channels, then positions along outer axes, row and column."""


class DirectConvolution:
    """Writes the function of a direct convolution for one tile.

    Args:
        channels: Number of channels of the input in all groups, if ``geometry`` pads them.
        copy_geometry: The original sizes, if ``geometry`` treats the taps of a filter's row as
            channels of one tap (see ``taps_as_channels_pay``). The input is then copied by them.
    """

    def __init__(
        self,
        geometry: Geometry,
        tile: Tile,
        spec: FusedSpec | BatchMatmulSpec | None = None,
        *,
        arithmetic: Arithmetic = FLOAT32_ARITHMETIC,
        channels: int | None = None,
        copy_geometry: Geometry | None = None,
    ) -> None:
        self.geometry = geometry
        self.copy_geometry = copy_geometry
        self.arithmetic = arithmetic
        self.dot = arithmetic.dot
        self.channels = channels
        self.tile = tile
        self.output = Output(geometry, tile, spec, sums=self.dot.sums)
        g = geometry
        self.blocks = math.ceil(self.output.channels / self.output.block)
        self.channel_blocks = g.ic // tile.channels
        # If the channels of neighbouring taps are contiguous in memory, a row is a single loop.
        contiguous = tile.copy or (g.layout == "NHWC" and g.groups == 1)
        self.fuses_taps = contiguous and self.channel_blocks == 1 and g.dilation[1] == 1
        self.input = self._make_input()
        self.weights = self._make_weights()

    def _make_input(self) -> Input:
        source, block, rows, overread = self.geometry, self.tile.channels, self.tile.copy, 0
        if self.copy_geometry is not None:
            source, block, rows = self.copy_geometry, self.copy_geometry.ic, True
            overread = self.geometry.ic - source.ic * source.kernel[1]
        return Input(
            source,
            block,
            rows=rows or (self.fuses_taps and source.kernel[1] > 1),
            lanes=self.dot.depth,
            arithmetic=self.arithmetic,
            channels=self.channels,
            zero_point=self.output.epilogue.zero_point,
            overread=overread,
        )

    def _make_weights(self) -> Buffer:
        g, depth = self.geometry, self.dot.depth
        shape = (g.groups * self.blocks, g.taps * g.ic // depth, self.output.block * depth)
        return emit.buffer("weights", shape, dtype=self.dot.weights)

    def function(self) -> tirx.PrimFunc:
        """The complete function; parameters: data, packed weights, [bias], [residual], out."""
        body = self._compute()
        if self.tile.copy:
            body = emit.allocate(
                self.input.copy_buffer, emit.sequence([self.input.make_copy(), body])
            )
        body = with_preludes(body, [self.dot])
        constants = self.output.epilogue.parameters
        return emit.function([self.input.data, self.weights, *constants, self.output.out], body)

    def _compute(self) -> Stmt:
        g, tile = self.geometry, self.tile
        down = emit.divided(extent_of(HEIGHT, g.out[0]), tile.rows)
        across = emit.divided(extent_of(WIDTH, g.out[1]), tile.columns)
        positions = (extent_of(BATCH, g.batch), *(axis.out for axis in g.outer), down, across)
        channels = (g.groups, self.blocks)
        extents = channels + positions if tile.channels_outermost else positions + channels

        def body(index: Expr) -> Stmt:
            digits = emit.split(index, extents)
            if tile.channels_outermost:
                group, block, *position = digits
            else:
                *position, group, block = digits
            return self._tile(position, group, block)

        return emit.parallel("tile", math.prod(extents), body)

    def _tile(self, position: list[Expr], group: Expr, block: Expr) -> Stmt:
        g, tile = self.geometry, self.tile
        n, *outer, yo, xo = position
        y = emit.tile_start(yo, tile.rows, g.out[0])
        x = emit.tile_start(xo, tile.columns, g.out[1])
        vectors = tile.rows * tile.columns * tile.vectors
        sums = emit.registers(vectors, g.lanes, dtype=self.dot.sums)

        def at(valid: NDArray[np.bool_]) -> TilePosition:
            return TilePosition(
                n=n, outer=tuple(outer), group=group, block=block, y=y, x=x, sums=sums, valid=valid
            )

        all_taps = np.ones((tile.columns, g.kernel[1]), np.bool_)
        if tile.copy:
            reduce = self._reduce(at(all_taps))
        else:
            patterns = tap_patterns(g, tile.columns)
            examples = [int(np.argmax(patterns == p)) for p in range(int(patterns.max()) + 1)]
            starts = np.minimum(np.array(examples) * tile.columns, g.out[1] - tile.columns)
            versions = [self._reduce(at(valid)) for valid in valid_taps(g, starts, tile.columns)]
            reduce = _select_version(patterns, versions, xo)
        zero = emit.zero(g.lanes, self.dot.sums)
        clear = [emit.assign(total, zero) for total in sums]
        write = self.output.write(at(all_taps))
        return emit.allocate(sums, emit.sequence([*clear, reduce, write]))

    def _reduce(self, at: TilePosition) -> Stmt:
        """Add every tap's products to the tile's sums."""
        tile = self.tile

        def taps(co: Expr, rz: tuple[Expr, ...], ry: Expr) -> Stmt:
            return emit.sequence([run(co, rz, ry, *columns) for columns in _tap_runs(at.valid)])

        def run(co: Expr, rz: tuple[Expr, ...], ry: Expr, first: int, count: int) -> Stmt:
            """The code for neighbouring taps of a filter's row, which the same columns use."""
            used = at.valid[:, first]
            if self.fuses_taps:
                return self._channels(at, (co, rz, ry, first), used, count * tile.channels)
            return emit.loop(
                "rx",
                count,
                lambda rx: self._channels(at, (co, rz, ry, rx), used, tile.channels),
                start=first,
            )

        return emit.loop(
            "co",
            self.channel_blocks,
            lambda co: self._tap_rows(at, lambda rz, ry: taps(co, rz, ry)),
        )

    def _tap_rows(self, at: TilePosition, body: Callable[[tuple[Expr, ...], Expr], Stmt]) -> Stmt:
        """Loops over the filter's outer axes and rows, without taps in the padding."""

        def nest(rz: tuple[Expr, ...]) -> Stmt:
            if len(rz) == len(self.geometry.outer):
                start, extent = self._row_taps(at.y)
                return emit.loop("ry", extent, lambda ry: body(rz, ry), start=start)
            start, extent = self._outer_taps(at, len(rz))
            return emit.loop("rz", extent, lambda tap: nest((*rz, tap)), start=start)

        return nest(())

    def _channels(self, at: TilePosition, tap: Tap, used: NDArray[np.bool_], extent: int) -> Stmt:
        """The innermost loop: over channels of one tap, or of all taps of a row."""
        extent //= self.dot.depth
        step = self.tile.unroll if extent % self.tile.unroll == 0 else 1

        def unrolled(c: Expr) -> Stmt:
            return emit.sequence([self._multiply(at, tap, c * step + u, used) for u in range(step)])

        return emit.loop("c", extent // step, unrolled)

    def _multiply(self, at: TilePosition, tap: Tap, c: Expr, used: NDArray[np.bool_]) -> Stmt:
        """Products of one channel of a tap, or of the channels that one instruction multiplies."""
        g, tile = self.geometry, self.tile
        co, rz, ry, rx = tap
        outer = self._outer(at, rz)
        columns = [self._weight(at, tap, c, v) for v in range(tile.vectors)]
        statements = []
        for yi in range(tile.rows):
            for xi in np.flatnonzero(used).tolist():
                row = (at.y + yi) * g.stride[0] + ry * g.dilation[0]
                column = (at.x + xi) * g.stride[1] + rx * g.dilation[1]
                element = self._element(at, co, outer, row, (column, c))
                value = emit.splat(element, g.lanes)
                for v, weight in enumerate(columns):
                    into = at.sums[(yi * tile.columns + xi) * tile.vectors + v]
                    total = self.dot.emit(emit.read(into), value, weight, g.lanes)
                    statements.append(emit.assign(into, total))
        return emit.sequence(statements)

    def _element(
        self, at: TilePosition, co: Expr, outer: list[Expr], row: Expr, last: tuple[Expr, Expr]
    ) -> Expr:
        """The input at a position of the padded planes; ``last`` is a column and a channel."""
        g, tile, depth = self.geometry, self.tile, self.dot.depth
        column, c = last
        c = c if depth == 1 else c * depth
        if tile.copy:
            block = at.group * self.channel_blocks + co
            value = self.input.load_copy(at.n, block, outer, row, (column, c))
        else:
            channel = at.group * g.ic + co * tile.channels + c
            value = self.input.load_in_place(at.n, channel, outer, row, column)
        return value if depth == 1 else tirx.reinterpret(self.dot.word, value)

    def _outer(self, at: TilePosition, rz: tuple[Expr, ...]) -> list[Expr]:
        """The position of a tap in the input along each outer axis."""
        return [
            z * axis.stride + tap * axis.dilation - axis.pad
            for z, tap, axis in zip(at.outer, rz, self.geometry.outer, strict=True)
        ]

    def _weight(self, at: TilePosition, tap: Tap, c: Expr, v: int) -> Expr:
        g = self.geometry
        depth = self.dot.depth
        row = emit.join((tap[0], self._tap_index(tap), c), (1, g.taps, self.tile.channels // depth))
        indices = [at.group * self.blocks + at.block, row, v * g.lanes * depth]
        return emit.load(self.weights, indices, g.lanes * depth)

    def _tap_index(self, tap: Tap) -> Expr:
        """Number of a tap within the filter, counted over all axes."""
        g = self.geometry
        _, rz, ry, rx = tap
        return emit.join((*rz, ry, rx), (*(axis.kernel for axis in g.outer), *g.kernel))

    def _row_taps(self, y: Expr) -> tuple[Expr, Expr]:
        """First row of the filter and number of its rows that fall inside the input."""
        g = self.geometry
        (kh, _), (dh, _), (top, _) = g.kernel, g.dilation, g.pads
        if self.tile.copy or not g.padded[0]:
            return 0, kh
        return _taps_inside(top - y * g.stride[0], g.size[0], kh, dh)

    def _outer_taps(self, at: TilePosition, number: int) -> tuple[Expr, Expr]:
        """First tap and number of taps of an outer axis that fall inside the input."""
        axis = self.geometry.outer[number]
        if not axis.padded:
            return 0, axis.kernel
        before = axis.pad - at.outer[number] * axis.stride
        return _taps_inside(before, axis.size, axis.kernel, axis.dilation)


def _taps_inside(before: Expr, size: int, kernel: int, dilation: int) -> tuple[Expr, Expr]:
    """First tap and number of taps that fall inside an axis of the input."""
    first = tirx.max(0, tirx.floordiv(before + dilation - 1, dilation))
    end = tirx.min(kernel, tirx.floordiv(size + before + dilation - 1, dilation))
    return first, tirx.max(0, end - first)


def _tap_runs(valid: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First tap and length of each run of taps that the same columns use."""
    starts = [0, *(1 + np.flatnonzero((valid[:, 1:] != valid[:, :-1]).any(axis=0))).tolist()]
    ends = [*starts[1:], valid.shape[1]]
    return [
        (start, end - start)
        for start, end in zip(starts, ends, strict=True)
        if valid[:, start].any()
    ]


def _select_version(patterns: NDArray[np.int64], versions: list[Stmt], xo: Expr) -> Stmt:
    """Code that selects the version for a tile; the most frequent version needs no comparison."""
    most_frequent = int(np.bincount(patterns).argmax())
    cases = []
    for pattern, version in enumerate(versions):
        if pattern != most_frequent:
            tiles = np.flatnonzero(patterns == pattern)
            # Tiles that read padding alone may be at both ends of a row.
            runs = np.split(tiles, 1 + np.flatnonzero(np.diff(tiles) > 1))
            tests = [tirx.all(xo >= int(run[0]), xo <= int(run[-1])) for run in runs]
            cases.append((tirx.any(*tests), version))
    return emit.branch(cases, versions[most_frequent])

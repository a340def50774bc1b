"""The template of depthwise convolutions: vectors of channels, sums in registers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
from chameleon_core.space import Choice, DesignSpace
from chameleon_core.stages import Arrays
from chameleon_core.task import Task
from numpy.typing import NDArray

from chameleon_tvm import emit
from chameleon_tvm.device.targets import target_info
from chameleon_tvm.emit import Buffer, Expr, Stmt
from chameleon_tvm.late_tvm import tirx
from chameleon_tvm.operators.specs import DepthwiseSpec, channel_block, convolution_of
from chameleon_tvm.spaces.template import conv2d
from chameleon_tvm.spaces.template.algorithms import KNOB, joined
from chameleon_tvm.spaces.template.arithmetic import lanewise
from chameleon_tvm.spaces.template.base import Template
from chameleon_tvm.spaces.template.direct import DirectConvolution, Tap
from chameleon_tvm.spaces.template.geometry import Geometry, Tile
from chameleon_tvm.spaces.template.options import DIRECT, TemplateOptions
from chameleon_tvm.spaces.template.planar import PlanarProducts
from chameleon_tvm.spaces.template.staging import Input
from chameleon_tvm.spaces.template.tiling import ConvolutionTiling
from chameleon_tvm.spaces.template.writing import TilePosition


class DepthwiseConvolution(DirectConvolution):
    """Writes the function of a depthwise convolution for one tile.

    Args:
        geometry: The convolution as one group of all channels, with as many input channels as
            output channels.
        tile: The decoded configuration.
        spec: The operator's arguments.
    """

    def __init__(self, geometry: Geometry, tile: Tile, spec: DepthwiseSpec) -> None:
        self.multiplier = spec.multiplier
        # Whole vectors are loaded, which would reach beyond the input where its channels end.
        copy = tile.copy or tile.vectors * geometry.lanes > geometry.ic
        super().__init__(geometry, attrs.evolve(tile, copy=copy), spec, arithmetic=lanewise(spec))

    def _make_input(self) -> Input:
        g = self.geometry
        block = max(g.ic, self.output.block)
        return Input(
            g,
            block,
            rows=self.tile.copy,
            lanes=g.lanes,
            repeat=self.multiplier,
            arithmetic=self.arithmetic,
            zero_point=self.output.epilogue.zero_point,
        )

    def _make_weights(self) -> Buffer:
        shape = (self.blocks, self.geometry.taps, self.output.block)
        return emit.buffer("weights", shape, dtype=self.dot.weights)

    def _reduce(self, at: TilePosition) -> Stmt:
        """Add the products of all taps; the columns of the filter are straight-line code."""
        used = [rx for rx in range(self.geometry.kernel[1]) if at.valid[:, rx].any()]

        def row(rz: tuple[Expr, ...], ry: Expr) -> Stmt:
            return emit.sequence(
                [self._multiply(at, (0, rz, ry, rx), 0, at.valid[:, rx]) for rx in used]
            )

        return self._tap_rows(at, row)

    def _multiply(self, at: TilePosition, tap: Tap, c: Expr, used: NDArray[np.bool_]) -> Stmt:
        g, tile, block = self.geometry, self.tile, self.output.block
        del c  # every channel is in a lane
        _, rz, ry, rx = tap
        outer = self._outer(at, rz)
        first = emit.within(at.block, block, self.output.channels)
        statements = []
        for v in range(tile.vectors):
            indices = [at.block, self._tap(tap), v * g.lanes]
            weight = emit.load(self.weights, indices, g.lanes)
            for yi in range(tile.rows):
                for xi in np.flatnonzero(used).tolist():
                    row = (at.y + yi) * g.stride[0] + ry * g.dilation[0]
                    column = (at.x + xi) * g.stride[1] + rx * g.dilation[1]
                    channel = first + v * g.lanes
                    if tile.copy:
                        value = self.input.copied(at.n, 0, outer, row, (column, channel))
                    else:
                        value = self.input.in_place(at.n, channel, outer, row, column)
                        zero_point = self.output.epilogue.zero_point
                        value = self.arithmetic.converted(value, zero_point, g.lanes)
                    into = at.sums[(yi * tile.columns + xi) * tile.vectors + v]
                    total = self.dot.emit(emit.read(into), value, weight, g.lanes)
                    statements.append(emit.assign(into, total))
        return emit.sequence(statements)


class DepthwiseTemplate(Template):
    """Template of depthwise convolutions of any rank.

    A kernel computes one output channel in each lane of a vector. It reads the input in place, or a
    copy of it. If an input channel has several filters, the copy repeats the channel for each of
    them. If the channels do not fill a vector, the copy is padded with zeros.
    """

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        del options  # there is one algorithm
        self.info = target_info(task.target)
        spec = convolution_of(task)
        if not isinstance(spec, DepthwiseSpec):
            raise TypeError(f"{task.operator} is no depthwise convolution")
        self.spec = spec
        self.arithmetic = lanewise(spec)
        geometry = conv2d.geometry_of(spec, self.info.lanes("float32"))
        self.planar = PlanarProducts.of(geometry, spec, self.info)
        channels = spec.output_channels
        self.geometry = attrs.evolve(geometry, groups=1, ic=channels, oc=channels)

    def space(self) -> DesignSpace:
        g = self.geometry
        size = channel_block(g.layout)
        vectors_fit = g.layout == "NHWC" or (size > 0 and size % g.lanes == 0)
        vectors_fit &= self.spec.multiplier == 1 and g.ic >= g.lanes
        vectors = DepthwiseTiling(
            g, self.info, in_place=vectors_fit, channel_blocks=(g.ic,), arithmetic=self.arithmetic
        ).space()
        if self.planar is None:
            return vectors
        return joined(vectors, self.planar.space(), usually_wins=False)

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        if self.planar is not None and values[KNOB] != DIRECT:
            return self.planar.function(values, conv2d.parameter_shapes(self.spec))
        loops = DepthwiseConvolution(self.geometry, conv2d.tile_of(values), self.spec)
        return emit.with_shapes(loops.function(), conv2d.parameter_shapes(self.spec))

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        if self.planar is not None and values[KNOB] != DIRECT:
            return self.planar.pack(values, constants)
        geometry = attrs.evolve(self.geometry, ic=1)
        tile = attrs.evolve(conv2d.tile_of(values), channels=1)
        return conv2d.pack_constants(constants, geometry, tile, self.arithmetic)


class DepthwiseTiling(ConvolutionTiling):
    """The design space of a depthwise convolution.

    An output reads one input channel only. So there is no loop over input channels, and no knob
    that unrolls it.
    """

    @property
    def reduced(self) -> int:
        return 1

    def _make_knobs(self, channel_blocks: tuple[int, ...], *, in_place: bool) -> tuple[Choice, ...]:
        knobs = super()._make_knobs(channel_blocks, in_place=in_place)
        return tuple(knob for knob in knobs if knob.name != "unroll")

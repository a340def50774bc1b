"""The template of depthwise convolutions: vectors of channels, sums in registers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import Arrays, Choice, DesignSpace, Task
from numpy.typing import NDArray

from chameleon_tvm import _emit as emit
from chameleon_tvm._device.targets import TargetInfo, target_info
from chameleon_tvm._emit import Buffer, Expr, Stmt
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._operators.convolution_specs import DepthwiseSpec, convolution_of
from chameleon_tvm._operators.layouts import channel_block
from chameleon_tvm._spaces.template.algorithms import Algorithm, Layer, MultiAlgorithmTemplate
from chameleon_tvm._spaces.template.arithmetic import Arithmetic, lanewise_arithmetic
from chameleon_tvm._spaces.template.convolution import (
    geometry_of,
    image_places,
    parameter_shapes,
)
from chameleon_tvm._spaces.template.direct import DirectConvolution, Tap
from chameleon_tvm._spaces.template.direct_algorithm import pack_constants, tile_of
from chameleon_tvm._spaces.template.direct_tiling import DirectTiling
from chameleon_tvm._spaces.template.geometry import Geometry, Tile
from chameleon_tvm._spaces.template.input import Input
from chameleon_tvm._spaces.template.options import DIRECT, TemplateOptions
from chameleon_tvm._spaces.template.output import TilePosition
from chameleon_tvm._spaces.template.planar import PlanarAlgorithm


class DepthwiseConvolution(DirectConvolution):
    """Writes the function of a depthwise convolution for one tile."""

    def __init__(self, geometry: Geometry, tile: Tile, spec: DepthwiseSpec) -> None:
        self.multiplier = spec.multiplier
        # Loads of whole vectors would reach beyond the input's last channels, so a copy is made
        # then.
        copy = tile.copy or tile.vectors * geometry.lanes > geometry.ic
        super().__init__(
            geometry, attrs.evolve(tile, copy=copy), spec, arithmetic=lanewise_arithmetic(spec)
        )

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
        valid_columns = [rx for rx in range(self.geometry.kernel[1]) if at.valid[:, rx].any()]

        def row(rz: tuple[Expr, ...], ry: Expr) -> Stmt:
            return emit.sequence(
                [self._multiply(at, (0, rz, ry, rx), 0, at.valid[:, rx]) for rx in valid_columns]
            )

        return self._tap_rows(at, row)

    def _multiply(
        self, at: TilePosition, tap: Tap, c: Expr, valid_columns: NDArray[np.bool_]
    ) -> Stmt:
        g, tile, block = self.geometry, self.tile, self.output.block
        del c  # every channel is in a lane
        _, rz, ry, rx = tap
        outer = self._outer(at, rz)
        first = emit.tile_start(at.block, block, self.output.channels)
        statements = []
        for v in range(tile.vectors):
            indices = [at.block, self._tap_index(tap), v * g.lanes]
            weight = emit.load(self.weights, indices, g.lanes)
            for yi in range(tile.rows):
                for xi in np.flatnonzero(valid_columns).tolist():
                    row = (at.y + yi) * g.stride[0] + ry * g.dilation[0]
                    column = (at.x + xi) * g.stride[1] + rx * g.dilation[1]
                    channel = first + v * g.lanes
                    if tile.copy:
                        value = self.input.load_copy(at.n, 0, outer, row, (column, channel))
                    else:
                        value = self.input.load_in_place(at.n, channel, outer, row, column)
                        zero_point = self.output.epilogue.zero_point
                        value = self.arithmetic.convert(value, zero_point, g.lanes)
                    into = at.sums[(yi * tile.columns + xi) * tile.vectors + v]
                    total = self.dot.emit(emit.read(into), value, weight, g.lanes)
                    statements.append(emit.assign(into, total))
        return emit.sequence(statements)


@attrs.frozen(kw_only=True, eq=False)
class DepthwiseAlgorithm(Algorithm):
    """The direct algorithm of a depthwise convolution: vectors of channels.

    The input is read in place or copied. The copy repeats the channels that have several filters,
    and pads with zeros the channels that do not fill a vector.
    """

    names = (DIRECT,)
    preferred = False

    geometry: Geometry
    spec: DepthwiseSpec
    info: TargetInfo

    @property
    def arithmetics(self) -> Mapping[str, Arithmetic]:
        """The dtypes of the inner loop, by the value of the knob ``algorithm``."""
        return {DIRECT: lanewise_arithmetic(self.spec)}

    def space(self) -> DesignSpace:
        g = self.geometry
        size = channel_block(g.layout)
        vectors_fit = g.layout == "NHWC" or (size > 0 and size % g.lanes == 0)
        vectors_fit &= self.spec.multiplier == 1 and g.ic >= g.lanes
        return DepthwiseTiling(
            g,
            self.info,
            in_place=vectors_fit,
            channel_blocks=(g.ic,),
            arithmetic=self.arithmetics[DIRECT],
        ).space()

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        return DepthwiseConvolution(self.geometry, tile_of(values), self.spec).function()

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        geometry = attrs.evolve(self.geometry, ic=1)
        tile = attrs.evolve(tile_of(values), channels=1)
        return pack_constants(constants, geometry, tile, self.arithmetics[DIRECT])


class DepthwiseTemplate(MultiAlgorithmTemplate):
    """Template of depthwise convolutions of any rank."""

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        info = target_info(task.target)
        spec = convolution_of(task)
        if not isinstance(spec, DepthwiseSpec):
            raise TypeError(f"{task.operator} is no depthwise convolution")
        geometry = geometry_of(spec, info.lanes("float32"))
        channels = spec.output_channels
        single_group = attrs.evolve(geometry, groups=1, ic=channels, oc=channels)
        vectors = DepthwiseAlgorithm(geometry=single_group, spec=spec, info=info)
        layer = Layer(
            geometry=geometry, direct=single_group, spec=spec, target=task.target, options=options
        )
        planar = PlanarAlgorithm.of(layer)
        self.algorithms = [vectors] if planar is None else [vectors, planar]
        self.shapes, self.axes = parameter_shapes(spec), image_places(spec)


class DepthwiseTiling(DirectTiling):
    """The design space of a depthwise convolution, which has no loop over input channels."""

    @property
    def reduction_channels(self) -> int:
        return 1

    def _make_knobs(self, channel_blocks: tuple[int, ...], *, in_place: bool) -> tuple[Choice, ...]:
        knobs = super()._make_knobs(channel_blocks, in_place=in_place)
        return tuple(knob for knob in knobs if knob.name != "unroll")

"""The template of convolutions: direct or Winograd's. Weights are packed before timing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
from chameleon_core.space import DesignSpace
from chameleon_core.space.knobs import divisors
from chameleon_core.stages import Arrays
from chameleon_core.task import Task
from numpy.typing import NDArray

from chameleon_tvm import emit
from chameleon_tvm.device.targets import target_info
from chameleon_tvm.late_tvm import tirx
from chameleon_tvm.operators.layouts import with_rank
from chameleon_tvm.operators.specs import (
    ConvolutionSpec,
    channel_block,
    convolution_of,
    physical_shape,
)
from chameleon_tvm.spaces.template.algorithms import KNOB, allowed_algorithms, joined
from chameleon_tvm.spaces.template.arithmetic import (
    FLOAT32,
    Arithmetic,
    arithmetic_of,
    finishing_constants,
)
from chameleon_tvm.spaces.template.base import Template
from chameleon_tvm.spaces.template.direct import DirectConvolution
from chameleon_tvm.spaces.template.geometry import (
    Geometry,
    OuterAxis,
    Tile,
    block_diagonal,
    groups_per_vector,
    pack_weights,
    row_runs,
    rows_as_channels,
)
from chameleon_tvm.spaces.template.options import DIRECT, TemplateOptions
from chameleon_tvm.spaces.template.planar import PlanarProducts
from chameleon_tvm.spaces.template.tile_products import TileProducts
from chameleon_tvm.spaces.template.tiling import ConvolutionTiling
from chameleon_tvm.spaces.template.winograd import (
    WinogradConvolution,
    pack_transformed,
    transform_weights,
)
from chameleon_tvm.spaces.template.winograd_tiling import (
    WinogradTiling,
    winograd_applies,
    winograd_tile_of,
)

Array = NDArray[np.float32]

SMALLEST_CHANNEL_BLOCK = 8
"""Smallest number of channels of a block. Shorter blocks do too little work between two jumps to
the next tap."""


def filled(channels: int, depth: int) -> int:
    """Number of input channels of a group, with zeros up to a multiple of ``depth``.

    Args:
        channels: Number of input channels of a group.
        depth: Number of channels that one instruction multiplies.
    """
    return -(-channels // depth) * depth


def channel_blocks(filled_up: int, channels: int, depth: int) -> tuple[int, ...]:
    """The choices for the number of input channels of a block, as values of a knob.

    Args:
        filled_up: Number of channels of a group, padding included.
        channels: Number of channels of a group that the input has.
        depth: Number of channels that one instruction multiplies.
    """
    if filled_up > channels:
        return (filled_up,)
    least = min(filled_up, SMALLEST_CHANNEL_BLOCK)
    return tuple(d for d in divisors(filled_up) if d >= least and d % depth == 0)


PLANE = 2
"""Number of axes of a tile's positions: height and width."""


def geometry_of(spec: ConvolutionSpec, lanes: int) -> Geometry:
    """The sizes of a convolution, for vectors of ``lanes`` elements."""
    axes = [
        OuterAxis(size=size, out=out, kernel=kernel, stride=stride, dilation=dilation, pad=pad)
        for size, out, kernel, stride, dilation, pad in zip(
            spec.input[2:],
            spec.output_shape[2:],
            spec.kernel_size,
            spec.strides,
            spec.dilations,
            spec.pads[: spec.rank],
            strict=True,
        )
    ]
    missing = max(0, PLANE - len(axes))
    axes = [OuterAxis(size=1, out=1, kernel=1)] * missing + axes
    *outer, rows, columns = axes
    batch = spec.input[0]
    layouts = {with_rank(layout, PLANE) for layout in (spec.layout, spec.output_layout)}
    while layouts == {"NHWC"} and outer and outer[0].independent:
        batch *= outer.pop(0).size
    return Geometry(
        batch=batch,
        groups=spec.group_count,
        ic=spec.input[1] // spec.group_count,
        oc=spec.output_channels // spec.group_count,
        size=(rows.size, columns.size),
        out=(rows.out, columns.out),
        kernel=(rows.kernel, columns.kernel),
        stride=(rows.stride, columns.stride),
        dilation=(rows.dilation, columns.dilation),
        pads=(rows.pad, columns.pad),
        layout=with_rank(spec.layout, PLANE),
        out_layout=with_rank(spec.output_layout, PLANE),
        lanes=lanes,
        outer=tuple(outer),
    )


def tile_of(values: Mapping[str, Any]) -> Tile:
    """The tile of a decoded configuration."""
    return Tile(
        rows=values["tile_rows"],
        columns=values["tile_columns"],
        vectors=values["tile_vectors"],
        channels=values["channel_block"],
        copy=values["input"] == "copy",
        channels_outermost=values["outermost"] == "channels",
        unroll=values.get("unroll", 1),
    )


def parameter_shapes(spec: ConvolutionSpec) -> dict[str, tuple[int, ...]]:
    """The physical shapes of a convolution's data, residual and output, by name."""
    out = physical_shape(spec.output_shape, spec.output_layout)
    return {"data": physical_shape(spec.input, spec.layout), "residual": out, "out": out}


def pack_constants(
    constants: Arrays, geometry: Geometry, tile: Tile, arithmetic: Arithmetic = FLOAT32
) -> Arrays:
    """Pack an operator's constants for a tile.

    Args:
        constants: Weights (O, I, spatial axes) and a bias, if any. For an int8 operator: weights,
            scale, bias and quantization.
        geometry: The sizes of the convolution.
        tile: The decoded configuration.
        arithmetic: The dtypes of the inner loop.
    """
    weights, *rest = constants
    channels = max(geometry.oc, tile.vectors * geometry.lanes)
    more = finishing_constants(weights, rest, geometry.groups, channels, arithmetic)
    ordered = pack_weights(arithmetic.weights(weights), geometry, tile, arithmetic.dot.depth)
    return [arithmetic.stored(ordered), *more]


class ConvolutionTemplate(Template):
    """Template of all convolutions on a CPU: any rank, grouped and dilated ones included.

    Several groups are computed together if one group is too small to fill a vector.
    """

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        self.info = target_info(task.target)
        self.spec = convolution_of(task)
        # Sums are 32 bits wide, whatever is added up.
        geometry = geometry_of(self.spec, self.info.lanes("float32"))
        # There are no planes of zeros in a copy.
        skipping = any(axis.padded for axis in geometry.outer)
        self.arithmetic = arithmetic_of(self.spec, task.target, skipping=skipping)
        dot = self.arithmetic.dot
        self._together = groups_per_vector(geometry)
        self.geometry = attrs.evolve(
            geometry,
            groups=geometry.groups // self._together,
            ic=filled(geometry.ic * self._together, dot.depth),
            oc=geometry.oc * self._together,
        )
        self.with_direct = DIRECT in options.algorithms
        self.winograd: tuple[str, ...] = ()
        self._transformed: dict[int, tuple[Array, Array]] = {}
        # What lies beyond a row is multiplied by zero, which is zero if it is a whole number.
        self.staging = row_runs(geometry, dot.depth) if self.arithmetic.quantized else None
        if self.staging is not None:
            run = filled(geometry.ic * geometry.kernel[1], dot.depth)
            self.geometry = attrs.evolve(geometry, ic=run, kernel=(geometry.kernel[0], 1))
        self.other: TileProducts | PlanarProducts | None = TileProducts.of(
            geometry, self.spec, task.target
        ) or PlanarProducts.of(geometry, self.spec, self.info)
        if self.arithmetic == FLOAT32 and winograd_applies(self.geometry):
            self.winograd = allowed_algorithms(options, self.geometry.ic)

    def space(self) -> DesignSpace:
        if self.other is not None:
            tiles = isinstance(self.other, TileProducts)
            return joined(self._direct_space(), self.other.space(), usually_wins=tiles)
        if not self.winograd:
            return self._direct_space()
        winograd = WinogradTiling(self.geometry, self.info, self.winograd).space()
        return joined(self._direct_space(), winograd) if self.with_direct else winograd

    def _direct_space(self) -> DesignSpace:
        g, channels = self.geometry, self.spec.input[1] // self.geometry.groups
        depth = self.arithmetic.dot.depth
        blocks = (g.ic,) if self.staging is not None else channel_blocks(g.ic, channels, depth)
        size = channel_block(g.layout)
        if size and self.arithmetic.as_they_are:
            # A block of the loop lies within a block of the layout, so that it is contiguous.
            within = [d for d in divisors(g.ic) if size % d == 0 and d % depth == 0]
            blocks = tuple(within[-3:]) or blocks
        return ConvolutionTiling(
            g, self.info, in_place=self._in_place, channel_blocks=blocks, arithmetic=self.arithmetic
        ).space()

    @property
    def _in_place(self) -> bool:
        """Whether the direct algorithm may read the input in place, without a copy."""
        g, depth = self.geometry, self.arithmetic.dot.depth
        size = channel_block(g.layout)
        contiguous = g.layout != "NCHW" and (not size or g.ic % size == 0 or size % g.ic == 0)
        if depth > 1:
            contiguous &= self.spec.input[1] == g.ic * g.groups and size % depth == 0
        # What stands for zero is in the copy's padding alone.
        skipped = not (self.arithmetic.quantized and any(g.padded))
        return contiguous and skipped and self.arithmetic.as_they_are

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        shapes = parameter_shapes(self.spec)
        if self.other is not None and values[KNOB] != DIRECT:
            return self.other.function(values, shapes)
        if values.get(KNOB, DIRECT) != DIRECT:
            winograd = WinogradConvolution(self.geometry, winograd_tile_of(values), self.spec)
            return emit.with_shapes(winograd.function(), shapes)
        loops = DirectConvolution(
            self.geometry,
            tile_of(values),
            self.spec,
            arithmetic=self.arithmetic,
            channels=self.spec.input[1],
            staging=self.staging,
        )
        return emit.with_shapes(loops.function(), shapes)

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        if self.other is not None and values[KNOB] != DIRECT:
            return self.other.pack(values, constants)
        weights, *bias = constants
        weights = block_diagonal(weights, self.spec.group_count, self._together)
        if values.get(KNOB, DIRECT) == DIRECT:
            if self.staging is not None:
                weights = rows_as_channels(weights)
            packed = [weights, *bias]
            return pack_constants(packed, self.geometry, tile_of(values), self.arithmetic)
        tile = winograd_tile_of(values)
        transformed = self._transform(weights, tile.out)
        return [pack_transformed(transformed, self.geometry, tile), *bias]

    def _transform(self, weights: Array, out: int) -> Array:
        """Transformed weights, cached: all configurations of a tuner use the same weights."""
        last = self._transformed.get(out)
        if last is None or last[0] is not weights:
            planar = weights.reshape(*weights.shape[:2], *self.geometry.kernel)
            last = self._transformed[out] = (weights, transform_weights(planar, out))
        return last[1]

"""The template of convolutions: register-tiled, direct, weights packed outside the clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chameleon_core.space import DesignSpace
from chameleon_core.stages import Arrays
from chameleon_core.task import Task

from chameleon_tvm.kernel import Program
from chameleon_tvm.operators.base import Operator
from chameleon_tvm.operators.specs import Conv2dSpec, DepthwiseConv2dSpec, channel_block
from chameleon_tvm.spaces.template.base import Template
from chameleon_tvm.spaces.template.direct import DirectConvolution
from chameleon_tvm.spaces.template.geometry import Geometry, Tile, pack_weights
from chameleon_tvm.spaces.template.tiling import ConvolutionTiling, divisors
from chameleon_tvm.targets import target_info

SMALLEST_CHANNEL_BLOCK = 8
"""Shorter blocks leave too little to do between two jumps to the next tap."""


def geometry_of(spec: Conv2dSpec | DepthwiseConv2dSpec, lanes: int) -> Geometry:
    """The sizes of one convolution."""
    n, oc, oh, ow = spec.output_shape
    _, c, h, w = spec.input
    return Geometry(
        batch=n,
        groups=spec.group_count,
        ic=c // spec.group_count,
        oc=oc // spec.group_count,
        size=(h, w),
        out=(oh, ow),
        kernel=spec.kernel_size,
        stride=spec.strides,
        dilation=spec.dilations,
        pads=spec.pads[:2],
        layout=spec.layout,
        out_layout=spec.output_layout,
        lanes=lanes,
    )


def tile_of(values: Mapping[str, Any]) -> Tile:
    """A decoded configuration as a tile."""
    return Tile(
        rows=values["tile_rows"],
        columns=values["tile_columns"],
        vectors=values["tile_vectors"],
        channels=values["channel_block"],
        copy=values["input"] == "copy",
        channels_outermost=values["outermost"] == "channels",
        unroll=values["unroll"],
    )


class ConvolutionTemplate(Template):
    """Any convolution on an llvm target, grouped and dilated ones included."""

    def __init__(self, task: Task) -> None:
        self.info = target_info(task.target)
        spec = Conv2dSpec.of(task)
        self.geometry = geometry_of(spec, self.info.lanes(spec.dtype))

    def space(self) -> DesignSpace:
        g = self.geometry
        blocks = tuple(d for d in divisors(g.ic) if d >= min(g.ic, SMALLEST_CHANNEL_BLOCK))
        size = channel_block(g.layout)
        if size:
            # A block of the loop lies within a block of the layout, so that it is contiguous.
            blocks = tuple(d for d in divisors(g.ic) if size % d == 0)[-3:]
        in_place = g.layout != "NCHW" and (not size or g.ic % size == 0 or size % g.ic == 0)
        return ConvolutionTiling(g, self.info, in_place=in_place, channel_blocks=blocks).space()

    def program(self, values: Mapping[str, Any], operator: Operator, inputs: Arrays) -> Program:
        tile = tile_of(values)
        made = DirectConvolution(self.geometry, tile)
        data = operator.arrange(inputs)[0].reshape([int(e) for e in made.input.data.shape])
        return Program(
            function=made.function(),
            inputs=[data, pack_weights(inputs[1], self.geometry, tile)],
            unpack=operator.logical,
            plain_loops=True,
        )

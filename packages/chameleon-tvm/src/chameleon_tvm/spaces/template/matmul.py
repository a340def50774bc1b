"""The template of products with weights: convolutions with 1x1 filters whose pixels are rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from chameleon_core.space import DesignSpace
from chameleon_core.stages import Arrays
from chameleon_core.task import Task

from chameleon_tvm.device.targets import target_info
from chameleon_tvm.operators.specs import DenseSpec
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.spaces.template import emit
from chameleon_tvm.spaces.template.algorithms import (
    KNOB,
    allowed_weights,
    joined,
    rounding_error,
    with_stored_weights,
)
from chameleon_tvm.spaces.template.arithmetic import (
    FLOAT32,
    Arithmetic,
    arithmetic_of,
    stored_weights,
)
from chameleon_tvm.spaces.template.base import Template
from chameleon_tvm.spaces.template.conv2d import (
    channel_blocks,
    filled,
    pack_constants,
    tile_of,
)
from chameleon_tvm.spaces.template.direct import DirectConvolution
from chameleon_tvm.spaces.template.geometry import Geometry
from chameleon_tvm.spaces.template.options import DIRECT, WEIGHTS, TemplateOptions
from chameleon_tvm.spaces.template.tile_products import TileProducts
from chameleon_tvm.spaces.template.tile_tiling import TILED
from chameleon_tvm.spaces.template.tiling import ConvolutionTiling

MOST = 4.0
"""Largest error of many outputs over the expected one that is accepted."""


def tiling_of(
    task: Task, geometry: Geometry, inner: int, arithmetic: Arithmetic = FLOAT32
) -> ConvolutionTiling:
    """The tiling of products.

    Args:
        task: the operator.
        geometry: of the convolution that it is.
        inner: products that an output adds up, before zeros fill them up.
        arithmetic: what it multiplies with.
    """
    return ConvolutionTiling(
        geometry,
        target_info(task.target),
        in_place=arithmetic.as_they_are and geometry.ic == inner,
        channel_blocks=channel_blocks(geometry.ic, inner, arithmetic.dot.depth),
        arithmetic=arithmetic,
    )


class DenseTemplate(Template):
    """A matrix product with constant weights, packed outside the clock.

    Where options allow it weights may be stored in less than float32 and widened on the way: with
    few rows they take longer to arrive than to be multiplied with.
    """

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        self.task = task
        self.spec = spec = DenseSpec.of(task)
        rows, features = spec.input
        self.arithmetic = arithmetic_of(spec, task.target)
        dot = self.arithmetic.dot
        self.geometry = Geometry(
            batch=1,
            groups=1,
            ic=filled(features, dot.depth),
            oc=spec.units,
            size=(1, rows),
            out=(1, rows),
            kernel=(1, 1),
            layout="NHWC",
            out_layout="NHWC",
            lanes=target_info(task.target).lanes("float32"),
        )
        self.tiles = TileProducts.of(attrs.evolve(self.geometry, ic=features), spec, task.target)
        self._algorithms = {DIRECT: self.arithmetic}
        if self.arithmetic is FLOAT32:
            for name in allowed_weights(options):
                widening = stored_weights(WEIGHTS[name], task.target)
                if widening is not None:
                    self._algorithms[name] = Arithmetic(dot=widening)

    def space(self) -> DesignSpace:
        spaces = {
            name: tiling_of(self.task, self.geometry, self.spec.input[1], one).space()
            for name, one in self._algorithms.items()
        }
        if len(spaces) > 1:
            return with_stored_weights(spaces)
        vectors = spaces[DIRECT]
        return vectors if self.tiles is None else joined(vectors, self.tiles.space())

    @property
    def tolerance(self) -> float:
        """A few times what is expected: the largest of many errors is compared."""
        names = [name for name in self._algorithms if name != DIRECT]
        return MOST * max((rounding_error(WEIGHTS[name]) for name in names), default=0.0)

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        out = self.spec.result_shape
        shapes = {"data": self.spec.input, "residual": out, "out": out}
        if self.tiles is not None and values[KNOB] == TILED:
            return self.tiles.function(values, shapes)
        made = DirectConvolution(
            self.geometry,
            tile_of(values),
            self.spec,
            arithmetic=self._algorithms[values.get(KNOB, DIRECT)],
            channels=self.spec.input[1],
        )
        return emit.with_shapes(made.function(), shapes)

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        weights, *rest = constants
        filters = weights[:, :, None, None]
        packed = [filters, *rest]
        if self.tiles is not None and values[KNOB] == TILED:
            return self.tiles.pack(values, packed)
        arithmetic = self._algorithms[values.get(KNOB, DIRECT)]
        return pack_constants(packed, self.geometry, tile_of(values), arithmetic)

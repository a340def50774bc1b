"""Convolutions of tile products, as one of the ways to compute a convolution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from chameleon_core.space import DesignSpace
from chameleon_core.stages import Arrays

from chameleon_tvm.device.targets import target_info
from chameleon_tvm.instructions.choosing import tile_products_of
from chameleon_tvm.instructions.emission import using
from chameleon_tvm.instructions.halves import half_of
from chameleon_tvm.operators.spec import FusedSpec
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.spaces.template import emit
from chameleon_tvm.spaces.template.arithmetic import TileArithmetic, finishing_constants
from chameleon_tvm.spaces.template.geometry import Geometry
from chameleon_tvm.spaces.template.tile_block import (
    TileBlock,
    applies,
    filled_channels,
    flattened,
    pack_tiles,
)
from chameleon_tvm.spaces.template.tile_convolution import TileConvolution
from chameleon_tvm.spaces.template.tile_tiling import TileTiling


class TileProducts:
    """What a template of convolutions or products needs of them.

    Args:
        geometry: the convolution, of one group.
        spec: the operator, on bytes, bfloat16 or float16.
        target: the canonical target.
        arithmetic: what it multiplies with.
    """

    def __init__(
        self, geometry: Geometry, spec: FusedSpec, target: str, arithmetic: TileArithmetic
    ) -> None:
        self.arithmetic = arithmetic
        self.product = arithmetic.product
        self.channels = geometry.ic
        own = flattened(attrs.evolve(geometry, lanes=self.product.columns))
        self.geometry = attrs.evolve(own, ic=filled_channels(own, self.product))
        self.spec = spec
        self.info = target_info(target)

    @classmethod
    def of(cls, geometry: Geometry, spec: FusedSpec, target: str) -> TileProducts | None:
        """Those of a convolution; None where the target has none for it.

        Args:
            geometry: the convolution.
            spec: the operator.
            target: the canonical target.
        """
        types = _types(spec)
        if types is None or not applies(geometry):
            return None
        data, weights, read = types
        found = tile_products_of(target, data=data, weights=weights)
        fitting = [one for one in found if one.data == read]
        if not fitting:
            return None
        return cls(geometry, spec, target, TileArithmetic(product=fitting[0], data=read))

    def space(self) -> DesignSpace:
        """The knobs, the first of which is the algorithm."""
        return TileTiling(self.geometry, self.info, self.product, in_place=self._in_place).space()

    @property
    def _in_place(self) -> bool:
        """Whether products may read the input where it is."""
        g = self.geometry
        return g.layout == "NHWC" and g.ic == self.channels and not any(g.padded)

    def function(self, values: Mapping[str, Any], shapes: Mapping[str, Any]) -> tirx.PrimFunc:
        """The function of a legal configuration.

        Args:
            values: of the knobs.
            shapes: of parameters as they are seen from outside.
        """
        block = TileBlock.of(values)
        made = TileConvolution(
            self.geometry,
            block,
            self.spec,
            arithmetic=self.arithmetic,
            channels=self.channels,
            cores=self.info.cores,
        )
        return using(emit.with_shapes(made.function(), shapes), [self.product])

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        """Logical constants (weights, ...) as the function wants them: ``finishing_constants``."""
        weights, *rest = constants
        block = TileBlock.of(values)
        channels = max(self.geometry.oc, block.vectors * self.product.columns)
        more = finishing_constants(weights, rest, 1, channels, self.arithmetic)
        numbers = self.arithmetic.weights(weights)
        packed = pack_tiles(numbers, self.geometry, block, self.product)
        return [self.arithmetic.stored(packed), *more]


def _types(spec: FusedSpec) -> tuple[str, str, str] | None:
    """Element types of an operator's tensors, and of the data that a product reads."""
    half = half_of(spec.dtype)
    if half is not None:
        return half.name, half.name, half.held
    return ("uint8", "int8", "uint8") if spec.quantized else None

"""Convolutions of tile products, as one of the ways to compute a convolution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from chameleon_core.space import DesignSpace
from chameleon_core.stages import Arrays

from chameleon_tvm.instructions.choosing import tile_products_of
from chameleon_tvm.instructions.emission import using
from chameleon_tvm.operators.specs import FusedSpec
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.spaces.template import emit
from chameleon_tvm.spaces.template.arithmetic import TileArithmetic
from chameleon_tvm.spaces.template.geometry import Geometry
from chameleon_tvm.spaces.template.tile_block import (
    Runs,
    TileBlock,
    applies,
    flattened,
    pack_tiles,
)
from chameleon_tvm.spaces.template.tile_convolution import TileConvolution
from chameleon_tvm.spaces.template.tile_tiling import TileTiling
from chameleon_tvm.spaces.template.vector_epilogue import pack_bias
from chameleon_tvm.targets import target_info


class TileProducts:
    """What a template of convolutions or products needs of them.

    Args:
        geometry: the convolution, of one group.
        spec: the operator, an int8 one.
        target: the canonical target.
        arithmetic: what it multiplies with.
    """

    def __init__(
        self, geometry: Geometry, spec: FusedSpec, target: str, arithmetic: TileArithmetic
    ) -> None:
        self.arithmetic = arithmetic
        self.product = arithmetic.product
        self.geometry = flattened(attrs.evolve(geometry, lanes=self.product.columns))
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
        if not (spec.quantized and applies(geometry)):
            return None
        found = tile_products_of(target, data="uint8", weights="int8")
        return next(
            (
                cls(geometry, spec, target, TileArithmetic(product=one, data="uint8"))
                for one in found
                if one.data == "uint8"
            ),
            None,
        )

    def space(self) -> DesignSpace:
        """The knobs, the first of which is the algorithm."""
        return TileTiling(self.geometry, self.info, self.product, in_place=self._in_place).space()

    @property
    def _in_place(self) -> bool:
        """Whether products may read the input where it is, and nothing beyond its end."""
        g = self.geometry
        whole = Runs.of(g, self.product).spare == 0
        return g.layout == "NHWC" and whole and not any(g.padded)

    def function(self, values: Mapping[str, Any], shapes: Mapping[str, Any]) -> tirx.PrimFunc:
        """The function of a legal configuration.

        Args:
            values: of the knobs.
            shapes: of parameters as they are seen from outside.
        """
        block = TileBlock.of(values)
        made = TileConvolution(
            self.geometry, block, self.spec, arithmetic=self.arithmetic, cores=self.info.cores
        )
        return using(emit.with_shapes(made.function(), shapes), [self.product])

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        """Logical constants (weights, scale, bias, quantisation) as the function wants them."""
        weights, scale, bias, numbers = constants
        block = TileBlock.of(values)
        channels = max(self.geometry.oc, block.vectors * self.product.columns)
        bias = self.arithmetic.bias(bias, weights, numbers)
        packed = [pack_bias(one, 1, channels) for one in (scale, bias)]
        return [pack_tiles(weights, self.geometry, block, self.product), *packed, numbers]

"""The epilogue of a register-tiled template, by the operator's element type."""

from __future__ import annotations

from collections.abc import Sequence

from chameleon_tvm.operators.element_types import HALVES
from chameleon_tvm.operators.specs import BatchMatmulSpec, FusedSpec
from chameleon_tvm.spaces.template.half_epilogue import HalfVectorEpilogue
from chameleon_tvm.spaces.template.quantized_epilogue import (
    QuantizedProductEpilogue,
    QuantizedVectorEpilogue,
)
from chameleon_tvm.spaces.template.vector_epilogue import VectorEpilogue


def epilogue_of(
    spec: FusedSpec | BatchMatmulSpec | None,
    channels: int,
    shape: Sequence[int],
    *,
    sums: str = "float32",
) -> VectorEpilogue:
    """The epilogue of an operator.

    Args:
        spec: the operator; None for one that has none.
        channels: how many numbers a bias has, padded.
        shape: of the output, and of the residual.
        sums: element type of the sums.
    """
    if spec is not None and spec.dtype in HALVES:
        return HalfVectorEpilogue(spec, channels, shape)
    if isinstance(spec, BatchMatmulSpec):
        product = QuantizedProductEpilogue(spec, channels, shape)
        return product if spec.quantized else VectorEpilogue(None, channels, shape)
    if spec is not None and spec.quantized:
        return QuantizedVectorEpilogue(spec, channels, shape, sums=sums)
    return VectorEpilogue(spec, channels, shape)

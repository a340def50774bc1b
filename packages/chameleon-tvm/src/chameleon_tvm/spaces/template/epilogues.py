"""The epilogue of a register-tiled template, by the operator's element type."""

from __future__ import annotations

from collections.abc import Sequence

from chameleon_tvm.operators.spec import BFLOAT16, FusedSpec
from chameleon_tvm.spaces.template.bfloat16_epilogue import Bfloat16VectorEpilogue
from chameleon_tvm.spaces.template.quantized_epilogue import QuantizedVectorEpilogue
from chameleon_tvm.spaces.template.vector_epilogue import VectorEpilogue


def epilogue_of(
    spec: FusedSpec | None, channels: int, shape: Sequence[int], *, sums: str = "float32"
) -> VectorEpilogue:
    """The epilogue of an operator.

    Args:
        spec: the operator; None for one that has none.
        channels: how many numbers a bias has, padded.
        shape: of the output, and of the residual.
        sums: element type of the sums.
    """
    if spec is not None and spec.quantized:
        return QuantizedVectorEpilogue(spec, channels, shape, sums=sums)
    if spec is not None and spec.dtype == BFLOAT16:
        return Bfloat16VectorEpilogue(spec, channels, shape)
    return VectorEpilogue(spec, channels, shape)

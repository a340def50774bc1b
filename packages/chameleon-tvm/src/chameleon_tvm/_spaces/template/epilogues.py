"""The epilogues of templates: bias, residual and activation of sums, for each dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chameleon_tvm import _emit as emit
from chameleon_tvm._arrays import contiguous
from chameleon_tvm._emit import Buffer, Expr
from chameleon_tvm._operators.activations import activate
from chameleon_tvm._operators.epilogues import PARAMETERS
from chameleon_tvm._operators.matmul_specs import BatchMatmulSpec
from chameleon_tvm._operators.requantization import (
    PRODUCT_PARAMETERS,
    requantize,
    requantize_product,
)
from chameleon_tvm._operators.spec import FusedSpec, TypedSpec
from chameleon_tvm._types import FLOAT32, STORAGE


class VectorEpilogue:
    """Writes the steps between sums and output: bias, residual, activation and rounding.

    ``bias`` and ``residual`` are the function's parameters, or None.
    """

    def __init__(self, spec: TypedSpec | None, channels: int, shape: Sequence[int]) -> None:
        self._output_type = STORAGE[FLOAT32 if spec is None else spec.output_dtype]
        self.out_dtype = self._output_type.storage_dtype
        self.activation = "none"
        self.bias: Buffer | None = None
        self.residual: Buffer | None = None
        if isinstance(spec, FusedSpec):
            self.activation = spec.activation
            self.bias = emit.buffer("bias", (channels,)) if spec.bias else None
            if spec.residual:
                self.residual = emit.buffer("residual", shape, dtype=self.out_dtype)

    @property
    def parameters(self) -> list[Buffer]:
        """The function's parameters for the epilogue, in order."""
        return [buffer for buffer in (self.bias, self.residual) if buffer is not None]

    @property
    def zero_point(self) -> Expr | None:
        """The zero point of the data in float32; None if the data have none."""
        return None

    def apply(self, sums: Expr, channel: Expr, index: Sequence[Expr], lanes: int) -> Expr:
        """The outputs of several neighbouring channels, as a vector."""
        return self.finish(self.add_bias(sums, channel, lanes), index, lanes)

    def add_bias(self, sums: Expr, channel: Expr, lanes: int) -> Expr:
        """The sums of ``lanes`` channels from ``channel``, with their bias added."""
        return sums if self.bias is None else sums + emit.load(self.bias, [channel], lanes)

    def finish(self, sums: Expr, index: Sequence[Expr], lanes: int) -> Expr:
        """Add the residual to biased sums, apply the activation, and round the result."""
        if self.residual is not None:
            residual = emit.load(self.residual, index, lanes)
            sums = sums + emit.widening(self._output_type, residual)
        return emit.rounding(self._output_type, activate(sums, self.activation))


def pack_bias(bias: NDArray[Any], groups: int, channels: int) -> NDArray[Any]:
    """Pad the channels of each group in a bias; the result has shape (groups * channels,)."""
    grouped = bias.reshape(groups, -1)
    padded = np.pad(grouped, ((0, 0), (0, channels - grouped.shape[1])))
    return contiguous(padded).reshape(-1)


class QuantizedVectorEpilogue(VectorEpilogue):
    """Writes the steps of ``QuantizedEpilogue`` between integer sums and output."""

    def __init__(
        self, spec: FusedSpec, channels: int, shape: Sequence[int], *, sums: str = "int32"
    ) -> None:
        super().__init__(spec, channels, shape)
        self.spec = spec
        self.scale = emit.buffer("scale", (channels,))
        self.bias = emit.buffer("bias", (channels,), dtype=sums)
        self.quantization = emit.buffer("quantization", (PARAMETERS,))

    @property
    def parameters(self) -> list[Buffer]:
        more = [] if self.residual is None else [self.residual]
        return [self.scale, self.bias, self.quantization, *more]

    @property
    def zero_point(self) -> Expr:
        return emit.load(self.quantization, [0])

    def add_bias(self, sums: Expr, channel: Expr, lanes: int) -> Expr:
        """Add the bias to integer sums, and scale them to float32."""
        total = sums + emit.load(self.bias, [channel], lanes)
        return emit.cast("float32", total) * emit.load(self.scale, [channel], lanes)

    def finish(self, sums: Expr, index: Sequence[Expr], lanes: int) -> Expr:
        residual = None if self.residual is None else emit.load(self.residual, index, lanes)
        quantization = [emit.load(self.quantization, [at]) for at in range(PARAMETERS)]
        return requantize(sums, residual, self.spec, quantization)


class QuantizedProductEpilogue(VectorEpilogue):
    """Writes the steps of ``QuantizedProduct`` between integer sums and output."""

    def __init__(self, spec: BatchMatmulSpec, channels: int, shape: Sequence[int]) -> None:
        super().__init__(spec, channels, shape)
        self.quantization = emit.buffer("quantization", (PRODUCT_PARAMETERS,))

    @property
    def parameters(self) -> list[Buffer]:
        return [self.quantization]

    @property
    def zero_point(self) -> Expr:
        return emit.load(self.quantization, [0])

    @property
    def right_zero_point(self) -> Expr:
        """The zero point of the right side, in float32."""
        return emit.load(self.quantization, [1])

    def finish(self, sums: Expr, index: Sequence[Expr], lanes: int) -> Expr:
        del index, lanes
        quantization = [emit.load(self.quantization, [at]) for at in range(PRODUCT_PARAMETERS)]
        return requantize_product(emit.cast("float32", sums), self._output_type.name, quantization)


def epilogue_of(
    spec: FusedSpec | BatchMatmulSpec | None,
    channels: int,
    shape: Sequence[int],
    *,
    sums: str = "float32",
) -> VectorEpilogue:
    """The epilogue of an operator; ``spec`` is None for a float32 operator without one."""
    if spec is None or not spec.quantized:
        return VectorEpilogue(spec, channels, shape)
    if isinstance(spec, BatchMatmulSpec):
        return QuantizedProductEpilogue(spec, channels, shape)
    return QuantizedVectorEpilogue(spec, channels, shape, sums=sums)

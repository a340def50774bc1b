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
from chameleon_tvm._operators.requantizing import PRODUCT_PARAMETERS, finished, finished_product
from chameleon_tvm._operators.specs import BatchMatmulSpec, FusedSpec, TypedSpec
from chameleon_tvm._types import FLOAT32, STORAGE


class VectorEpilogue:
    """Writes the steps between the sums and the output of an operator, as TensorIR.

    The steps add bias and residual, apply the activation, and round to the output's dtype.

    Args:
        spec: The operator's arguments. None for an operator in float32 without an epilogue.
        shape: Shape of the output and of the residual.

    Attributes:
        bias: The function's parameter for the bias, or None.
        residual: The function's parameter for the residual, or None.
        out_type: Dtype of the output.
    """

    def __init__(self, spec: TypedSpec | None, channels: int, shape: Sequence[int]) -> None:
        self._written = STORAGE[FLOAT32 if spec is None else spec.output_dtype]
        self.out_type = self._written.storage_dtype
        self.activation = "none"
        self.bias: Buffer | None = None
        self.residual: Buffer | None = None
        if isinstance(spec, FusedSpec):
            self.activation = spec.activation
            self.bias = emit.buffer("bias", (channels,)) if spec.bias else None
            if spec.residual:
                self.residual = emit.buffer("residual", shape, dtype=self.out_type)

    @property
    def parameters(self) -> list[Buffer]:
        """The function's parameters for the epilogue, in order."""
        return [buffer for buffer in (self.bias, self.residual) if buffer is not None]

    @property
    def zero_point(self) -> Expr | None:
        """The zero point of the data in float32; None if the data have none."""
        return None

    def whole(self, sums: Expr, channel: Expr, index: Sequence[Expr], lanes: int) -> Expr:
        """The outputs of several neighbouring channels, as a vector."""
        return self.last(self.biased(sums, channel, lanes), index, lanes)

    def biased(self, sums: Expr, channel: Expr, lanes: int) -> Expr:
        """The sums of ``lanes`` channels from ``channel``, with their bias added."""
        return sums if self.bias is None else sums + emit.load(self.bias, [channel], lanes)

    def last(self, sums: Expr, index: Sequence[Expr], lanes: int) -> Expr:
        """Add the residual to biased sums, apply the activation, and round the result."""
        if self.residual is not None:
            added = emit.load(self.residual, index, lanes)
            sums = sums + emit.widening(self._written, added)
        return emit.rounding(self._written, activate(sums, self.activation))


def pack_bias(bias: NDArray[Any], groups: int, channels: int) -> NDArray[Any]:
    """Pad the channels of each group in a bias; the result has shape (groups * channels,)."""
    grouped = bias.reshape(groups, -1)
    padded = np.pad(grouped, ((0, 0), (0, channels - grouped.shape[1])))
    return contiguous(padded).reshape(-1)


class QuantizedVectorEpilogue(VectorEpilogue):
    """Writes the steps between integer sums and the output of an int8 operator, as TensorIR.

    ``QuantizedEpilogue`` defines these steps.

    Args:
        shape: Shape of the output and of the residual.
    """

    def __init__(
        self, spec: FusedSpec, channels: int, shape: Sequence[int], *, sums: str = "int32"
    ) -> None:
        super().__init__(spec, channels, shape)
        self.spec = spec
        self.scale = emit.buffer("scale", (channels,))
        self.bias = emit.buffer("bias", (channels,), dtype=sums)
        self.numbers = emit.buffer("quantization", (PARAMETERS,))

    @property
    def parameters(self) -> list[Buffer]:
        more = [] if self.residual is None else [self.residual]
        return [self.scale, self.bias, self.numbers, *more]

    @property
    def zero_point(self) -> Expr:
        return emit.load(self.numbers, [0])

    def biased(self, sums: Expr, channel: Expr, lanes: int) -> Expr:
        """Add the bias to integer sums, and scale them to float32."""
        total = sums + emit.load(self.bias, [channel], lanes)
        return emit.cast("float32", total) * emit.load(self.scale, [channel], lanes)

    def last(self, sums: Expr, index: Sequence[Expr], lanes: int) -> Expr:
        residual = None if self.residual is None else emit.load(self.residual, index, lanes)
        numbers = [emit.load(self.numbers, [at]) for at in range(PARAMETERS)]
        return finished(sums, residual, self.spec, numbers)


class QuantizedProductEpilogue(VectorEpilogue):
    """Writes the steps between integer sums and the output of an int8 product, as TensorIR.

    ``QuantizedProduct`` defines these steps.

    Args:
        shape: Shape of the output.
    """

    def __init__(self, spec: BatchMatmulSpec, channels: int, shape: Sequence[int]) -> None:
        super().__init__(spec, channels, shape)
        self.numbers = emit.buffer("quantization", (PRODUCT_PARAMETERS,))

    @property
    def parameters(self) -> list[Buffer]:
        return [self.numbers]

    @property
    def zero_point(self) -> Expr:
        return emit.load(self.numbers, [0])

    @property
    def right_zero_point(self) -> Expr:
        """The zero point of the right side, in float32."""
        return emit.load(self.numbers, [1])

    def last(self, sums: Expr, index: Sequence[Expr], lanes: int) -> Expr:
        del index, lanes
        numbers = [emit.load(self.numbers, [at]) for at in range(PRODUCT_PARAMETERS)]
        return finished_product(emit.cast("float32", sums), self._written.name, numbers)


def epilogue_of(
    spec: FusedSpec | BatchMatmulSpec | None,
    channels: int,
    shape: Sequence[int],
    *,
    sums: str = "float32",
) -> VectorEpilogue:
    """Make the epilogue of a template, which adds bias and residual and applies the activation.

    Args:
        spec: The operator's arguments. None if the operator has no bias, residual or activation and
            is in float32.
        shape: Shape of the output and of the residual.
    """
    if spec is None or not spec.quantized:
        return VectorEpilogue(spec, channels, shape)
    if isinstance(spec, BatchMatmulSpec):
        return QuantizedProductEpilogue(spec, channels, shape)
    return QuantizedVectorEpilogue(spec, channels, shape, sums=sums)

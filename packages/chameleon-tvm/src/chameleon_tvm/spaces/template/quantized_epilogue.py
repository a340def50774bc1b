"""The last steps of int8 kernels: integer sums are scaled and quantized again."""

from __future__ import annotations

from collections.abc import Sequence

from chameleon_tvm import emit
from chameleon_tvm.emit import Buffer, Expr
from chameleon_tvm.operators.quantized import PARAMETERS
from chameleon_tvm.operators.quantized_products import PARAMETERS as OF_PRODUCTS
from chameleon_tvm.operators.quantized_products import finished_product
from chameleon_tvm.operators.requantizing import finished
from chameleon_tvm.operators.specs import BatchMatmulSpec, FusedSpec
from chameleon_tvm.spaces.template.vector_epilogue import VectorEpilogue


class QuantizedVectorEpilogue(VectorEpilogue):
    """Writes the steps between integer sums and the output of an int8 operator, as TensorIR.

    ``QuantizedEpilogue`` defines these steps.

    Args:
        spec: The arguments of an int8 operator.
        channels: Number of elements of scale and bias, padding included.
        shape: Shape of the output and of the residual.
        sums: Dtype of the sums and of the packed bias.
    """

    def __init__(
        self, spec: FusedSpec, channels: int, shape: Sequence[int], *, sums: str = "int32"
    ) -> None:
        super().__init__(None, channels, shape)
        self.spec = spec
        self.out_type = spec.output_dtype
        self.scale = emit.buffer("scale", (channels,))
        self.offsets = emit.buffer("bias", (channels,), dtype=sums)
        self.numbers = emit.buffer("quantization", (PARAMETERS,))
        if spec.residual:
            self.residual = emit.buffer("residual", shape, dtype=self.out_type)

    @property
    def parameters(self) -> list[Buffer]:
        more = [] if self.residual is None else [self.residual]
        return [self.scale, self.offsets, self.numbers, *more]

    @property
    def zero_point(self) -> Expr:
        return emit.load(self.numbers, [0])

    def biased(self, sums: Expr, channel: Expr, lanes: int) -> Expr:
        """Add the bias to integer sums, and scale them to float32.

        Args:
            sums: A vector of integer sums.
            channel: Output channel of the first lane.
            lanes: Number of elements of the vector, each for one channel.
        """
        total = sums + emit.load(self.offsets, [channel], lanes)
        return emit.cast("float32", total) * emit.load(self.scale, [channel], lanes)

    def last(self, sums: Expr, index: Sequence[Expr], lanes: int) -> Expr:
        residual = None if self.residual is None else emit.load(self.residual, index, lanes)
        numbers = [emit.load(self.numbers, [at]) for at in range(PARAMETERS)]
        return finished(sums, residual, self.spec, numbers)


class QuantizedProductEpilogue(VectorEpilogue):
    """Writes the steps between integer sums and the output of an int8 product, as TensorIR.

    ``QuantizedProduct`` defines these steps.

    Args:
        spec: The arguments of an int8 product of two quantized tensors.
        channels: The number of columns of one product times the number of products in the batch.
            All columns have the same scale.
        shape: Shape of the output.
    """

    def __init__(self, spec: BatchMatmulSpec, channels: int, shape: Sequence[int]) -> None:
        super().__init__(None, channels, shape)
        self.out_type = spec.output_dtype
        self.numbers = emit.buffer("quantization", (OF_PRODUCTS,))

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
        numbers = [emit.load(self.numbers, [at]) for at in range(OF_PRODUCTS)]
        return finished_product(emit.cast("float32", sums), self.out_type, numbers)

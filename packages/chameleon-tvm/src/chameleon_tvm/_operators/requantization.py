"""The last steps of int8 operators as TensorIR expressions, and products of two quantized tensors.

Both sides of such a product are uint8 with one scale and zero point each (Jacob et al. 2018,
section 2.2, arXiv 1712.05877). The ``sums`` of ``(a - left_zero_point) * (b - right_zero_point)``
are exact in int32. A float32 output is ``float32(sums) * scale``, with the product of the sides'
scales. A uint8 output is ``round(float32(sums) * scale) + out_zero_point``, clipped to 0 to 255,
with ``scale`` divided by the output's scale, and halves rounded to even numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_tvm._emit import Expr, broadcast_like, constant, constant_like, vector_dtype
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._operators.activations import activate
from chameleon_tvm._operators.spec import FusedSpec
from chameleon_tvm._types import STORAGE, UINT8

LARGEST = float(STORAGE[UINT8].high)
_ROUNDING_CONSTANT = 1.5 * 2.0**23
"""Near this number, float32 represents only integers. If an integer is added to it, the last byte
of the sum is that of the integer."""
CLIPPING_ACTIVATIONS: dict[str, tuple[float, float | None]] = {
    "relu": (0.0, None),
    "relu6": (0.0, 6.0),
}
"""Lower and upper bounds of the activations that only clip."""


def requantize(real: Expr, residual: Expr | None, spec: FusedSpec, numbers: Sequence[Expr]) -> Expr:
    """The output of an int8 operator, from its scaled sums and the fields of ``Quantization``."""
    _, scale, zero, multiplier, out_zero = numbers
    quantized = STORAGE[spec.output_dtype].whole
    if residual is not None and quantized:
        steps = tirx.Cast(
            vector_dtype("float32", real), tirx.Cast(vector_dtype("int32", real), residual)
        )
        real = real + (steps - broadcast_like(zero, real)) * broadcast_like(scale, real)
    elif residual is not None:
        real = real + residual
    if not quantized:
        return activate(real, spec.activation)
    # Bounds are integers, so that rounding does not exceed them. The multiplier is positive, so the
    # scaled bounds of a clipping activation remain bounds.
    low, high = constant(0.0) - out_zero, constant(LARGEST) - out_zero
    if spec.activation in CLIPPING_ACTIVATIONS:
        least, greatest = CLIPPING_ACTIVATIONS[spec.activation]
        low = tirx.max(low, constant(least) * multiplier)
        high = high if greatest is None else tirx.min(high, constant(greatest) * multiplier)
    else:
        real = activate(real, spec.activation)
    return clip_and_round(real * broadcast_like(multiplier, real), low, high, out_zero)


def clip_and_round(scaled: Expr, low: Expr, high: Expr, zero: Expr) -> Expr:
    """Clip numbers to bounds without fractional parts, and round them to uint8, halves to even."""
    inside = tirx.min(tirx.max(scaled, broadcast_like(low, scaled)), broadcast_like(high, scaled))
    # The constant is so large that the sum has no fractional bits, and its last bits are the
    # integer. The addition rounds halves to even numbers and saves an instruction for a conversion.
    bits = tirx.reinterpret(
        vector_dtype("int32", scaled), inside + constant_like(_ROUNDING_CONSTANT, scaled)
    )
    return tirx.Cast(
        vector_dtype(UINT8, scaled), bits + broadcast_like(tirx.Cast("int32", zero), scaled)
    )


PRODUCT_PARAMETERS = 4
"""Number of fields of ``QuantizedProduct``."""


@attrs.frozen
class PackedConstants:
    """Numbers that a kernel gets as one float32 array, in the order of the fields."""

    @property
    def array(self) -> NDArray[np.float32]:
        """The fields as the float32 array that operators take."""
        return np.array(attrs.astuple(self), np.float32)

    @classmethod
    def of(cls, array: NDArray[Any]) -> Self:
        """Read the fields from such an array."""
        fields = attrs.fields(cls)
        return cls(**{field.name: float(at) for field, at in zip(fields, array, strict=True)})


@attrs.frozen(kw_only=True)
class QuantizedProduct(PackedConstants):
    """The zero points and the scale of a product of two quantized tensors.

    The kernel gets these numbers as one float32 array, in the order of the attributes.

    Attributes:
        left_zero_point: Zero point of the left side.
        right_zero_point: Zero point of the right side.
        scale: Factor of the sums.
        out_zero_point: Zero point of the output, if it is uint8.
    """

    left_zero_point: float
    right_zero_point: float
    scale: float
    out_zero_point: float = 0.0

    def output(self, sums: NDArray[np.float64], output_dtype: str) -> NDArray[np.float64]:
        """Compute the output of a quantized product from its exact sums, for checks.

        The sums are scaled in float32, as the operator is defined.

        Args:
            sums: Exact sums, of any shape.
            output_dtype: Dtype of the output.
        """
        scaled = (sums.astype(np.float32) * np.float32(self.scale)).astype(np.float64)
        if not STORAGE[output_dtype].whole:
            return scaled
        return np.asarray(np.clip(np.rint(scaled) + self.out_zero_point, 0, LARGEST))


def example_product(reduced: int) -> QuantizedProduct:
    """Constants for measurements, with which uint8 outputs cover their whole range."""
    # The standard deviation of sums of products of independent, uniform numbers.
    typical = 256.0**2 / 12.0 * reduced**0.5
    return QuantizedProduct(
        left_zero_point=113.0, right_zero_point=131.0, scale=40.0 / typical, out_zero_point=119.0
    )


def requantize_product(sums: Any, output_dtype: str, numbers: Sequence[Any]) -> Any:
    """The output of a quantized product, from its sums and the fields of ``QuantizedProduct``."""
    _, _, scale, zero = numbers
    real = sums * broadcast_like(scale, sums)
    if not STORAGE[output_dtype].whole:
        return real
    low, high = (constant(bound) - zero for bound in (0.0, LARGEST))
    return clip_and_round(real, low, high, zero)

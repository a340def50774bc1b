"""Products of two quantized tensors, neither of which is constant: exact sums, then one scale.

Both sides are uint8 with one scale and one zero point each (Jacob et al. 2018, section 2.2, arXiv
1712.05877). The ``sums`` of ``(a - left_zero_point) * (b - right_zero_point)`` are exact in int32.

For a float32 output, ``scale`` is the product of both sides' scales, and the output is
``float32(sums) * scale``. For a uint8 output, ``scale`` is this product divided by the output's
scale. The output is then ``round(float32(sums) * scale) + out_zero_point``, clipped to 0 to 255,
with halves rounded to even numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_tvm.emit import constant, every
from chameleon_tvm.operators.requantizing import clipped
from chameleon_tvm.types import STORAGE, UINT8

PARAMETERS = 4
"""Number of fields of ``QuantizedProduct``."""
LARGEST = STORAGE[UINT8].high


@attrs.frozen
class KernelNumbers:
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
class QuantizedProduct(KernelNumbers):
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

    def output(self, sums: NDArray[np.float64], written: str) -> NDArray[np.float64]:
        """Compute the output of a quantized product from its exact sums, for checks.

        The sums are scaled in float32, as the operator is defined.

        Args:
            sums: Exact sums, of any shape.
            written: Dtype of the output.
        """
        scaled = (sums.astype(np.float32) * np.float32(self.scale)).astype(np.float64)
        if not STORAGE[written].whole:
            return scaled
        return np.asarray(np.clip(np.rint(scaled) + self.out_zero_point, 0, LARGEST))


def example(reduced: int) -> QuantizedProduct:
    """Constants for measurements of a quantized product.

    With them, uint8 outputs cover their whole range.

    Args:
        reduced: Number of products that each output adds up.
    """
    # The standard deviation of sums of products of independent, uniform numbers.
    typical = 256.0**2 / 12.0 * reduced**0.5
    return QuantizedProduct(
        left_zero_point=113.0, right_zero_point=131.0, scale=40.0 / typical, out_zero_point=119.0
    )


def finished_product(sums: Any, written: str, numbers: Sequence[Any]) -> Any:
    """The output of a quantized product for some sums, as a TensorIR expression.

    Args:
        sums: The sums, converted to float32.
        written: Dtype of the output.
        numbers: The fields of ``QuantizedProduct`` in order, float32 scalars.
    """
    _, _, scale, zero = numbers
    real = sums * every(scale, sums)
    if not STORAGE[written].whole:
        return real
    low, high = (constant(bound) - zero for bound in (0.0, float(LARGEST)))
    return clipped(real, low, high, zero)

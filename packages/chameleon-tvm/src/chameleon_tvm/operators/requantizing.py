"""Makes TensorIR expressions that turn the scaled sums of an int8 operator into its output."""

from __future__ import annotations

from collections.abc import Sequence

from chameleon_tvm.emit import Expr, constant, every, number, typed
from chameleon_tvm.late_tvm import tirx
from chameleon_tvm.operators.activations import activate
from chameleon_tvm.operators.spec import FusedSpec
from chameleon_tvm.types import STORAGE, UINT8

LARGEST = float(STORAGE[UINT8].high)
INTEGRAL = 1.5 * 2.0**23
"""Near this number, float32 represents only integers. If an integer is added to it, the last byte
of the sum is that of the integer."""
CLIPPING: dict[str, tuple[float, float | None]] = {"relu": (0.0, None), "relu6": (0.0, 6.0)}
"""Lower and upper bounds of the activations that only clip."""


def finished(real: Expr, residual: Expr | None, spec: FusedSpec, numbers: Sequence[Expr]) -> Expr:
    """The output of an int8 operator as a TensorIR expression of its scaled sums.

    It adds the residual, applies the activation and rounds to the output's dtype.

    Args:
        real: The scaled sums in float32, a scalar or a vector.
        residual: The residual in the output's dtype, with as many lanes as ``real``; None if the
            operator has no residual.
        spec: The arguments of the int8 operator.
        numbers: The fields of ``Quantization`` in order, float32 scalars.
    """
    _, scale, zero, multiplier, out_zero = numbers
    quantized = STORAGE[spec.output_dtype].whole
    if residual is not None and quantized:
        steps = tirx.Cast(typed("float32", real), tirx.Cast(typed("int32", real), residual))
        real = real + (steps - every(zero, real)) * every(scale, real)
    elif residual is not None:
        real = real + residual
    if not quantized:
        return activate(real, spec.activation)
    # Bounds are whole numbers, so that rounding does not pass them. Products with a positive number
    # keep their order, so that those of an activation that clips bound them as well.
    low, high = constant(0.0) - out_zero, constant(LARGEST) - out_zero
    if spec.activation in CLIPPING:
        bottom, top = CLIPPING[spec.activation]
        low = tirx.max(low, constant(bottom) * multiplier)
        high = high if top is None else tirx.min(high, constant(top) * multiplier)
    else:
        real = activate(real, spec.activation)
    return clipped(real * every(multiplier, real), low, high, out_zero)


def clipped(scaled: Expr, low: Expr, high: Expr, zero: Expr) -> Expr:
    """Clip numbers and round them to uint8, halves to even numbers.

    Args:
        scaled: Distances from the zero point in float32, in units of the output's scale; a scalar
            or a vector.
        low: The lower bound of ``scaled``, a scalar without a fractional part.
        high: The upper bound of ``scaled``, a scalar without a fractional part.
        zero: The output's zero point, a float32 scalar.
    """
    inside = tirx.min(tirx.max(scaled, every(low, scaled)), every(high, scaled))
    # The sum has no digits behind the point, and those before it are the last bits: an addition
    # rounds halves to even numbers, and a conversion takes another instruction.
    bits = tirx.reinterpret(typed("int32", scaled), inside + number(INTEGRAL, scaled))
    return tirx.Cast(typed(UINT8, scaled), bits + every(tirx.Cast("int32", zero), scaled))

"""TensorIR expressions that convert numbers of a storage type to float32 and back."""

from __future__ import annotations

from typing import Any

from chameleon_tvm.late_tvm import tirx
from chameleon_tvm.types import FLOAT32, StorageType

Expr = Any


def widening(kind: StorageType, value: Expr, lanes: int = 1) -> Expr:
    """The expression that converts stored numbers to float32, as ``StorageType.real`` does.

    Args:
        kind: A floating-point storage type.
        value: The stored number, or a vector of stored numbers.
        lanes: Number of elements of the vector; 1 for a single number.
    """
    if kind.name == FLOAT32:
        return value
    if kind.storage_dtype == kind.name:
        # A conversion of the CPU's own (F16C, NEON), denormals included.
        return tirx.Cast(_typed(FLOAT32, lanes), value)
    bits = tirx.Cast(_typed("uint32", lanes), value) << _word(16, lanes)
    return tirx.reinterpret(_typed(FLOAT32, lanes), bits)


def rounding(kind: StorageType, value: Expr, lanes: int = 1) -> Expr:
    """The expression that rounds float32 to a storage type, as ``StorageType.stored`` does.

    Args:
        kind: A floating-point storage type.
        value: A float32 number, or a vector of float32 numbers.
        lanes: Number of elements of the vector; 1 for a single number.
    """
    if kind.name == FLOAT32:
        return value
    if kind.storage_dtype == kind.name:
        return tirx.Cast(_typed(kind.name, lanes), value)
    bits = tirx.reinterpret(_typed("uint32", lanes), value)
    odd = (bits >> _word(16, lanes)) & _word(1, lanes)
    nearest = (bits + _word(0x7FFF, lanes) + odd) >> _word(16, lanes)
    # A comparison with itself is one that TVM decides.
    is_nan = (bits & _word(0x7FFFFFFF, lanes)) > _word(0x7F800000, lanes)
    word = tirx.Select(is_nan, _word(0x7FC0, lanes), nearest)
    return tirx.Cast(_typed(kind.storage_dtype, lanes), word)


def _typed(dtype: str, lanes: int) -> str:
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def _word(value: int, lanes: int) -> Expr:
    scalar = tirx.IntImm("uint32", value)
    return scalar if lanes == 1 else tirx.Broadcast(scalar, lanes)

"""Tensors of types that kernels do not compute in: half precision, 8 and fewer bits.

Such a tensor stands as one of float32, or of 8-bit integers, with the same values. Rounding to its
type happens where the network casts to it, as ``Cast`` and ``QuantizeLinear`` do, and at outputs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import attrs
import ml_dtypes
import numpy as np
from chameleon_tvm.instructions.conversions import rounding, widening
from chameleon_tvm.quick_tvm import te, tirx
from chameleon_tvm.types import BFLOAT16, FLOAT16, FLOAT32, STORAGE, StorageType
from numpy.typing import NDArray

from chameleon_networks.graph.relaxed import relax

op = relax.op

HALVES = (FLOAT16, BFLOAT16)
"""Types of half precision."""
INTEGERS: Mapping[str, str] = {"int4": "int8", "uint4": "uint8", "int2": "int8", "uint2": "uint8"}
"""What stands for integers of few bits."""

_FLOATS = tuple(
    name
    for name in dir(ml_dtypes)
    if name.startswith(("float8_", "float4_")) and isinstance(getattr(ml_dtypes, name), type)
)
E8M0 = "float8_e8m0fnu"
"""A type of powers of two."""

TYPES = frozenset((*HALVES, *INTEGERS, *_FLOATS))
"""Names of the types that something stands for."""


@attrs.frozen(eq=False)
class Typed:
    """A tensor of another type than that of the expression that stands for it.

    Attributes:
        value: the expression.
        kind: the name of the type.
    """

    value: Any
    kind: str


def stand_in(kind: str) -> str:
    """The type of what stands for a type."""
    return INTEGERS.get(kind, "float32") if kind in TYPES else kind


def interface(kind: str) -> str:
    """The type of a network's inputs and outputs of a type; 8 bits are as they are in memory.

    TVM's own bfloat16 ends the process on CPUs.
    """
    return "uint8" if kind in _FLOATS else kind if kind == FLOAT16 else stand_in(kind)


def to_interface(array: NDArray[Any]) -> NDArray[Any]:
    """An array as a network takes it."""
    kind = array.dtype.name
    if kind in _FLOATS:
        return array.view(np.uint8)
    return array.astype(interface(kind), copy=False)


def from_interface(array: NDArray[Any], kind: str) -> NDArray[Any]:
    """An array of a type, of what a network gives."""
    if kind in _FLOATS:
        return array.view(np.dtype(kind))
    return array.astype(np.dtype(kind), copy=False)


def read(builder: Any, value: Any, kind: str) -> Typed:
    """The tensor that stands for an input of the network."""
    emit = builder.emit
    if kind == FLOAT16:
        value = emit(op.astype(value, "float32"))
    elif kind in _FLOATS:
        table = relax.const(_values(kind).astype(np.float32), "float32")
        shape = [int(one) for one in value.ty.shape]
        places = emit(op.reshape(emit(op.astype(value, "int32")), [int(np.prod(shape))]))
        value = emit(op.reshape(emit(op.take(table, places, 0)), shape))
    return Typed(value, kind)


def written(builder: Any, given: Typed) -> Any:
    """An output of the network, of what stands for it."""
    if given.kind == FLOAT16:
        return builder.emit(op.astype(given.value, FLOAT16))
    if given.kind in _FLOATS:
        return _looked_up(builder, given.value, given.kind, codes=True)
    return given.value


def rounded(
    builder: Any, value: Any, kind: str, *, saturate: bool = True, mode: str = "nearest"
) -> Typed:
    """Numbers rounded to a type.

    Args:
        builder: a ``BlockBuilder`` in a block.
        value: of float32, or of any integer type.
        kind: the type.
        saturate: whether what is too large becomes the largest number.
        mode: ``nearest``, ``up`` or ``down``; halves go to the even code.
    """
    if kind in INTEGERS:
        return Typed(_wrapped(builder, value, kind), kind)
    if str(value.ty.dtype) != FLOAT32:
        value = builder.emit(op.astype(value, FLOAT32))
    if kind in HALVES:
        return Typed(builder.emit(_half(builder, value, STORAGE[kind])), kind)
    return Typed(_looked_up(builder, value, kind, saturate=saturate, mode=mode), kind)


def _half(builder: Any, value: Any, kind: StorageType) -> Any:
    def nearest(number: Any) -> Any:
        # Rounding reads a number several times, which may be a long expression once it is fused.
        variable = tirx.Var("number", FLOAT32)
        return tirx.Let(variable, number, widening(kind, rounding(kind, variable)))

    def whole(source: te.Tensor) -> te.Tensor:
        return te.compute(source.shape, lambda *at: nearest(source(*at)), name="round")

    return builder.call_te(whole, value, primfunc_name_hint=f"round_{kind.name}")


def _wrapped(builder: Any, value: Any, kind: str) -> Any:
    """The lowest bits of integers, with their sign."""
    emit = builder.emit
    mask = (1 << int(kind[-1])) - 1
    low = emit(op.bitwise_and(emit(op.astype(value, "int32")), relax.const(mask, "int32")))
    if not kind.startswith("u"):
        sign = relax.const((mask + 1) // 2, "int32")
        low = emit(op.subtract(emit(op.bitwise_xor(low, sign)), sign))
    return emit(op.astype(low, INTEGERS[kind]))


@cache
def _values(kind: str) -> NDArray[Any]:
    """The number of each code."""
    count = 16 if kind.startswith("float4") else 256
    with np.errstate(all="ignore"):
        return np.arange(count, dtype=np.uint8).view(np.dtype(kind)).astype(np.float64)


def _looked_up(
    builder: Any,
    value: Any,
    kind: str,
    *,
    saturate: bool = True,
    mode: str = "nearest",
    codes: bool = False,
) -> Any:
    """The numbers of a type that are nearest to others, or their codes.

    How many of the thresholds between a type's numbers are no larger than a number tells which of
    them it becomes.
    """
    emit = builder.emit
    numbers, thresholds, table, nan = _steps(kind, saturate, mode, codes)
    shape = [int(one) for one in value.ty.shape]
    flat = emit(op.reshape(value, [math.prod(shape)]))
    over = op.greater_equal(emit(op.reshape(flat, [-1, 1])), relax.const(thresholds[None]))
    place = emit(op.sum(emit(op.astype(emit(over), "int32")), [1]))
    made = emit(op.take(relax.const(table, table.dtype.name), place, 0))
    nan_or_zero = relax.const(np.asarray(nan, table.dtype), table.dtype.name)
    made = emit(op.where(emit(op.isnan(flat)), nan_or_zero, made))
    [minus_zero] = np.nonzero((numbers == 0) & np.signbit(numbers))
    if len(minus_zero):
        zero = emit(op.equal(flat, relax.const(0.0)))
        if codes:
            # Only a division tells the zeros apart.
            below = emit(op.less(emit(op.divide(relax.const(1.0), flat)), relax.const(0.0)))
            zero = emit(op.logical_and(zero, below))
            made = emit(op.where(zero, relax.const(int(minus_zero[0]), "uint8"), made))
        else:
            made = emit(op.where(zero, flat, made))
    return emit(op.reshape(made, shape))


@cache
def _steps(
    kind: str, saturate: bool, mode: str, codes: bool
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], Any]:
    """A type's numbers by code; thresholds; what is between these; and what NaN becomes."""
    numbers = _values(kind)
    order = [c for c in np.argsort(numbers, kind="stable").tolist() if np.isfinite(numbers[c])]
    order = [c for c in order if numbers[c] != 0 or not np.signbit(numbers[c])]
    steps = numbers[order]
    tops = [2 * steps[-1] - steps[-2], 2 * steps[0] - steps[1]]
    infinite = {float(numbers[c]): c for c in range(len(numbers)) if np.isinf(numbers[c])}
    # One with its sign bit set comes last.
    nans = [c for c in range(len(numbers)) if np.isnan(numbers[c])] or [0]
    beyond = [infinite.get(np.inf, nans[0]), infinite.get(-np.inf, nans[-1])]
    if saturate and not codes:
        beyond = [order[-1], order[0]]
    order = [beyond[1], *order, beyond[0]]
    steps = np.asarray([tops[1], *steps, tops[0]])
    thresholds = []
    for place, (low, high) in enumerate(itertools.pairwise(steps)):
        if mode == "up":
            limit = np.nextafter(np.float32(low), np.float32(np.inf))
        elif mode == "down":
            limit = np.float32(high)
        else:
            limit = np.float32((low + high) / 2)
            lower, upper = order[place], order[place + 1]
            outer = place in {0, len(steps) - 2}
            to_lower = (upper if place == 0 else lower) % 2 == 0 if outer else lower % 2 == 0
            if to_lower != (place == 0):
                limit = np.nextafter(limit, np.float32(np.inf))
        thresholds.append(limit)
    table = np.asarray(order, np.uint8) if codes else numbers[order].astype(np.float32)
    nan = nans[0] if codes else np.nan if np.isnan(numbers[nans[0]]) else 0.0
    return numbers, np.asarray(thresholds, np.float32), table, nan

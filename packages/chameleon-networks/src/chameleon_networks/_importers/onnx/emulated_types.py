"""Emulates ONNX dtypes that kernels lack: half precision, and 8 bits or fewer.

A tensor is held as float32 or 8-bit integers of the same values, rounded at casts and outputs.
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
from chameleon_core.plugin_api import FLOAT32
from chameleon_tvm.api import BFLOAT16, FLOAT16, STORAGE, StorageType, emit, tirx
from numpy.typing import NDArray

from chameleon_networks._graph.relax_utils import map_elements, relax

op = relax.op

HALVES = (FLOAT16, BFLOAT16)
"""Dtypes of half precision."""
SMALL_INTEGERS: Mapping[str, str] = {
    "int4": "int8",
    "uint4": "uint8",
    "int2": "int8",
    "uint2": "uint8",
}
"""The dtypes that represent integers of few bits in Relax."""

_FLOATS = tuple(
    name
    for name in dir(ml_dtypes)
    if name.startswith(("float8_", "float4_")) and isinstance(getattr(ml_dtypes, name), type)
)
E8M0 = "float8_e8m0fnu"
"""A dtype whose numbers are powers of two."""

EMULATED = frozenset((*HALVES, *SMALL_INTEGERS, *_FLOATS))
"""Dtypes that other dtypes represent in Relax."""


@attrs.frozen(eq=False)
class Emulated:
    """A tensor that represents another dtype than that of its Relax expression.

    Attributes:
        value: The Relax expression, in float32 or in 8-bit integers.
        dtype: The name of the dtype that the tensor represents.
    """

    value: Any
    dtype: str


def compute_dtype(dtype: str) -> str:
    """The dtype in which a dtype of the ONNX model is computed."""
    return SMALL_INTEGERS.get(dtype, "float32") if dtype in EMULATED else dtype


def interface_dtype(dtype: str) -> str:
    """The dtype of an input or output of the compiled network for a dtype of the model."""
    # Floats of 8 bits are passed as bytes; TVM's bfloat16 crashes the process on CPUs.
    return "uint8" if dtype in _FLOATS else dtype if dtype == FLOAT16 else compute_dtype(dtype)


def to_interface(array: NDArray[Any]) -> NDArray[Any]:
    """Convert an input array to the dtype that the compiled network takes (``interface_dtype``)."""
    dtype = array.dtype.name
    if dtype in _FLOATS:
        return array.view(np.uint8)
    return array.astype(interface_dtype(dtype), copy=False)


def from_interface(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Convert an output array of the compiled network to dtype ``dtype``."""
    if dtype in _FLOATS:
        return array.view(np.dtype(dtype))
    return array.astype(np.dtype(dtype), copy=False)


def decode_input(builder: Any, value: Any, dtype: str) -> Emulated:
    """Convert an input of the compiled network to the tensor that the network computes with."""
    emit = builder.emit
    if dtype == FLOAT16:
        value = emit(op.astype(value, "float32"))
    elif dtype in _FLOATS:
        table = relax.const(_numbers_by_code(dtype).astype(np.float32), "float32")
        shape = [int(extent) for extent in value.ty.shape]
        flat_codes = emit(op.reshape(emit(op.astype(value, "int32")), [int(np.prod(shape))]))
        value = emit(op.reshape(emit(op.take(table, flat_codes, 0)), shape))
    return Emulated(value, dtype)


def encode_output(builder: Any, tensor: Emulated) -> Any:
    """Convert an output of the network from its compute dtype to that of the model."""
    if tensor.dtype == FLOAT16:
        return builder.emit(op.astype(tensor.value, FLOAT16))
    if tensor.dtype in _FLOATS:
        return _round_by_table(builder, tensor.value, tensor.dtype, codes=True)
    return tensor.value


def round_to_dtype(
    builder: Any, value: Any, dtype: str, *, saturate: bool = True, mode: str = "nearest"
) -> Emulated:
    """Round a tensor to a dtype in which kernels do not compute, such as float16."""
    if dtype in SMALL_INTEGERS:
        return Emulated(_wrap_integers(builder, value, dtype), dtype)
    if str(value.ty.dtype) != FLOAT32:
        value = builder.emit(op.astype(value, FLOAT32))
    if dtype in HALVES:
        return Emulated(builder.emit(_round_half_precision(builder, value, STORAGE[dtype])), dtype)
    return Emulated(_round_by_table(builder, value, dtype, saturate=saturate, mode=mode), dtype)


def _round_half_precision(builder: Any, value: Any, dtype: StorageType) -> Any:
    def nearest(number: Any) -> Any:
        # Rounding reads a number several times, which may be a long expression after fusion.
        variable = tirx.Var("number", FLOAT32)
        return tirx.Let(variable, number, emit.widening(dtype, emit.rounding(dtype, variable)))

    return map_elements(builder, nearest, value, f"round_{dtype.name}")


def _wrap_integers(builder: Any, value: Any, dtype: str) -> Any:
    """Keep the lowest bits of integers, and extend their sign."""
    emit = builder.emit
    mask = (1 << int(dtype[-1])) - 1
    low = emit(op.bitwise_and(emit(op.astype(value, "int32")), relax.const(mask, "int32")))
    if not dtype.startswith("u"):
        sign = relax.const((mask + 1) // 2, "int32")
        low = emit(op.subtract(emit(op.bitwise_xor(low, sign)), sign))
    return emit(op.astype(low, SMALL_INTEGERS[dtype]))


@cache
def _numbers_by_code(dtype: str) -> NDArray[Any]:
    """The number that each code of a dtype stands for."""
    count = 16 if dtype.startswith("float4") else 256
    with np.errstate(all="ignore"):
        return np.arange(count, dtype=np.uint8).view(np.dtype(dtype)).astype(np.float64)


def _round_by_table(
    builder: Any, value: Any, dtype: str, *, codes: bool = False, **options: Any
) -> Any:
    """Round to numbers of a dtype or their codes, by the count of thresholds below."""
    emit = builder.emit
    numbers, thresholds, table, nan = _rounding_tables(dtype, codes=codes, **options)
    shape = value.ty.shape
    flat = emit(op.reshape(value, [math.prod(map(int, shape))]))
    over = op.reshape(flat, [-1, 1]) >= relax.const(thresholds[None])
    position = emit(op.sum(op.astype(over, "int32"), [1]))
    result = emit(op.take(relax.const(table, table.dtype.name), position, 0))
    nan_or_zero = relax.const(np.asarray(nan, table.dtype), table.dtype.name)
    result = emit(op.where(emit(op.isnan(flat)), nan_or_zero, result))
    [minus_zero] = np.nonzero((numbers == 0) & np.signbit(numbers))
    if len(minus_zero):
        zero = op.equal(flat, relax.const(0.0))
        if codes:
            # Only a division distinguishes 0 and -0.
            zero = op.logical_and(zero, relax.const(1.0) / flat < relax.const(0.0))
        result = op.where(zero, relax.const(int(minus_zero[0]), "uint8") if codes else flat, result)
    return emit(op.reshape(result, shape))


@cache
def _rounding_tables(
    dtype: str, *, codes: bool, saturate: bool = True, mode: str = "nearest"
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], Any]:
    """Tables for ``_round_by_table``."""
    numbers = _numbers_by_code(dtype)
    order = [c for c in np.argsort(numbers, kind="stable").tolist() if np.isfinite(numbers[c])]
    order = [c for c in order if numbers[c] != 0 or not np.signbit(numbers[c])]
    steps = numbers[order]
    tops = [2 * steps[-1] - steps[-2], 2 * steps[0] - steps[1]]
    infinite = {float(numbers[c]): c for c in range(len(numbers)) if np.isinf(numbers[c])}
    # A NaN with its sign bit set comes last.
    nans = [c for c in range(len(numbers)) if np.isnan(numbers[c])] or [0]
    beyond = [infinite.get(np.inf, nans[0]), infinite.get(-np.inf, nans[-1])]
    if saturate and not codes:
        beyond = [order[-1], order[0]]
    order = [beyond[1], *order, beyond[0]]
    steps = np.asarray([tops[1], *steps, tops[0]])
    thresholds = []
    for position, (low, high) in enumerate(itertools.pairwise(steps)):
        if mode == "up":
            limit = np.nextafter(np.float32(low), np.float32(np.inf))
        elif mode == "down":
            limit = np.float32(high)
        else:
            limit = np.float32((low + high) / 2)
            lower, upper = order[position], order[position + 1]
            outer = position in {0, len(steps) - 2}
            to_lower = (upper if position == 0 else lower) % 2 == 0 if outer else lower % 2 == 0
            if to_lower != (position == 0):
                limit = np.nextafter(limit, np.float32(np.inf))
        thresholds.append(limit)
    table = np.asarray(order, np.uint8) if codes else numbers[order].astype(np.float32)
    nan = nans[0] if codes else np.nan if np.isnan(numbers[nans[0]]) else 0.0
    return numbers, np.asarray(thresholds, np.float32), table, nan

"""Converters of ``quantized_decomposed`` operators, which torch's pt2e and torchao write."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from chameleon_tvm.api import INT8, UINT8

from chameleon_networks._graph.relax_utils import relax, tvm
from chameleon_networks._importers.torch.lowering.torch_calls import Converter, TorchCall, extents

op = relax.op

_INTEGERS = frozenset({INT8, UINT8, "int16", "uint16", "int32"})


def _dtype(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _qparams(call: TorchCall) -> tuple[Any, Any]:
    """Scale and zero point of a call, each a scalar or a vector. A missing zero point is 0."""
    scale, zero_point = call.node.args[1:3]
    return _parameter(call, scale, "float32"), _parameter(call, zero_point or 0, "int32")


def _parameter(call: TorchCall, value: Any, dtype: str) -> Any:
    parameter = call.tensor(value, dtype)
    if isinstance(value, bool | int | float):
        return parameter
    extents_above_one = [extent for extent in extents(parameter) if extent != 1]
    return (
        op.reshape(parameter, extents_above_one)
        if extents(parameter) != extents_above_one
        else parameter
    )


def _quantize(axis_at: int | None, call: TorchCall) -> Any:
    """Quantize by a call's scale, zero point, [axis], least and largest number, and dtype."""
    last = 3 if axis_at is None else 4
    low, high = int(call.node.args[last]), int(call.node.args[last + 1])
    dtype = _dtype(call.argument(last + 2, "dtype"))
    if dtype not in _INTEGERS:
        raise NotImplementedError(f"{call.node.target.__name__} makes {dtype}")
    axis = _axis(call, axis_at)
    result = op.quantize(call.value(0), *_qparams(call), axis=axis, out_dtype=dtype)
    limits = torch.iinfo(getattr(torch, dtype))
    # Rounding is monotonic, so that integer bounds may be applied afterwards.
    if low > limits.min:
        result = op.maximum(result, relax.const(low, dtype))
    if high < limits.max:
        result = op.minimum(result, relax.const(high, dtype))
    return result


def _dequantize(axis_at: int | None, call: TorchCall) -> Any:
    result = op.dequantize(call.value(0), *_qparams(call), axis=_axis(call, axis_at))
    out_dtype = call.node.kwargs.get("out_dtype")
    if out_dtype is not None and out_dtype != torch.float32:
        raise NotImplementedError(f"it gives {_dtype(out_dtype)}")
    return result


def _axis(call: TorchCall, axis_at: int | None) -> int:
    rank = len(extents(call.value(0)))
    return 0 if axis_at is None else int(call.node.args[axis_at]) % max(rank, 1)


def _choose_qparams(call: TorchCall) -> Any:
    """``choose_qparams.tensor``: scale and zero point of a range that the network computes."""
    data = call.value(0)
    low, high, epsilon = int(call.node.args[1]), int(call.node.args[2]), float(call.node.args[3])

    def number(value: float) -> Any:
        return relax.const(np.float32(value), "float32")

    least = call.emit(op.minimum(op.min(data), number(0)))
    span = op.maximum(op.max(data), number(0)) - least
    scale = call.emit(op.maximum(span / number(high - low), number(epsilon)))
    bounds = (tvm.tirx.const(float(bound), "float32") for bound in (low, high))
    zero_point = op.astype(op.clip(number(low) - op.round(least / scale), *bounds), "int64")
    return relax.Tuple([call.emit(op.reshape(value, [1])) for value in (scale, zero_point)])


CONVERTERS: dict[str, Converter] = {
    "quantize_per_tensor.default": partial(_quantize, None),
    "quantize_per_tensor.tensor": partial(_quantize, None),
    "dequantize_per_tensor.default": partial(_dequantize, None),
    "dequantize_per_tensor.tensor": partial(_dequantize, None),
    "quantize_per_channel.default": partial(_quantize, 3),
    "dequantize_per_channel.default": partial(_dequantize, 3),
    "choose_qparams.tensor": _choose_qparams,
}
"""Converters by the name of the operator."""

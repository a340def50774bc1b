"""Converters of the quantization steps that torch's export (pt2e) writes.

torch 2.x defines these operators (``quantized_decomposed``) in
``torch.ao.quantization.fx._decomposed``. torchao writes the same operators.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from chameleon_tvm.types import INT8, UINT8

from chameleon_networks.graph.relaxed import relax, tvm
from chameleon_networks.importers.torch.lowering.values import Call, Converter, extents

_INTEGERS = frozenset({INT8, UINT8, "int16", "uint16", "int32"})


def _dtype(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _parameters(call: Call) -> tuple[Any, Any]:
    """Scale and zero point of a call, each a scalar or a vector. A missing zero point is 0."""
    scale, zero = call.node.args[1:3]
    return _parameter(call, scale, "float32"), _parameter(call, zero or 0, "int32")


def _parameter(call: Call, value: Any, dtype: str) -> Any:
    found = call.tensor(value, dtype)
    if isinstance(value, bool | int | float):
        return found
    several = [extent for extent in extents(found) if extent != 1]
    return call.emit(relax.op.reshape(found, several)) if extents(found) != several else found


def _quantize(axis_at: int | None, call: Call) -> Any:
    """The call's arguments: input, scale, zero point, [axis], least and largest number, dtype."""
    last = 3 if axis_at is None else 4
    low, high = int(call.node.args[last]), int(call.node.args[last + 1])
    dtype = _dtype(call.given(last + 2, "dtype"))
    if dtype not in _INTEGERS:
        raise NotImplementedError(f"{call.node.target.__name__} makes {dtype}")
    axis = _axis(call, axis_at)
    made = call.emit(
        relax.op.quantize(call.value(0), *_parameters(call), axis=axis, out_dtype=dtype)
    )
    limits = torch.iinfo(getattr(torch, dtype))
    # What is inside of some bounds stays there when it is rounded.
    if low > limits.min:
        made = call.emit(relax.op.maximum(made, relax.const(low, dtype)))
    if high < limits.max:
        made = call.emit(relax.op.minimum(made, relax.const(high, dtype)))
    return made


def _dequantize(axis_at: int | None, call: Call) -> Any:
    made = relax.op.dequantize(call.value(0), *_parameters(call), axis=_axis(call, axis_at))
    wanted = call.node.kwargs.get("out_dtype")
    if wanted is not None and wanted != torch.float32:
        raise NotImplementedError(f"it gives {_dtype(wanted)}")
    return call.emit(made)


def _axis(call: Call, axis_at: int | None) -> int:
    rank = len(extents(call.value(0)))
    return 0 if axis_at is None else int(call.node.args[axis_at]) % max(rank, 1)


def _chosen(call: Call) -> Any:
    """``choose_qparams.tensor``: scale and zero point of a range that the network computes."""
    data = call.value(0)
    low, high, epsilon = int(call.node.args[1]), int(call.node.args[2]), float(call.node.args[3])

    def number(value: float) -> Any:
        return relax.const(np.float32(value), "float32")

    least = call.emit(relax.op.minimum(call.emit(relax.op.min(data)), number(0)))
    most = call.emit(relax.op.maximum(call.emit(relax.op.max(data)), number(0)))
    span = call.emit(relax.op.subtract(most, least))
    scale = call.emit(relax.op.divide(span, number(high - low)))
    scale = call.emit(relax.op.maximum(scale, number(epsilon)))
    steps = call.emit(relax.op.round(call.emit(relax.op.divide(least, scale))))
    zero = call.emit(relax.op.subtract(number(low), steps))
    bounds = (tvm.tirx.const(float(one), "float32") for one in (low, high))
    zero = call.emit(relax.op.astype(call.emit(relax.op.clip(zero, *bounds)), "int64"))
    return relax.Tuple([call.emit(relax.op.reshape(value, [1])) for value in (scale, zero)])


CONVERTERS: dict[str, Converter] = {
    **{f"quantize_per_tensor.{name}": partial(_quantize, None) for name in ("default", "tensor")},
    **{
        f"dequantize_per_tensor.{name}": partial(_dequantize, None)
        for name in ("default", "tensor")
    },
    "quantize_per_channel.default": partial(_quantize, 3),
    "dequantize_per_channel.default": partial(_dequantize, 3),
    "choose_qparams.tensor": _chosen,
}
"""Converters by the name of the operator."""

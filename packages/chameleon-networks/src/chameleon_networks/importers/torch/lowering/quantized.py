"""Steps of quantization, as torch's export (pt2e) writes them: ``quantized_decomposed``.

``torch.ao.quantization.fx._decomposed`` of torch 2.x defines them; torchao writes the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from chameleon_tvm.types import INT8, UINT8

from chameleon_networks.graph.relaxed import relax, tvm
from chameleon_networks.importers.torch.lowering.values import Converter, extents, given

_INTEGERS = frozenset({INT8, UINT8, "int16", "uint16", "int32"})


def _dtype(value: Any) -> str:
    return str(value).removeprefix("torch.")


def _scale(importer: Any, value: Any) -> Any:
    """A scale as one number of float32, or as a vector of them."""
    return _parameter(importer, value, "float32")


def _zero(importer: Any, value: Any) -> Any:
    """A zero point as one number of int32, or as a vector of them; 0 where there is none."""
    return _parameter(importer, 0 if value is None else value, "int32")


def _parameter(importer: Any, value: Any, dtype: str) -> Any:
    if isinstance(value, bool | int | float):
        return relax.const(value, dtype)
    emit, found = importer.block_builder.emit, importer.env[value]
    if str(found.ty.dtype) != dtype:
        found = emit(relax.op.astype(found, dtype))
    several = [extent for extent in extents(found) if extent != 1]
    return emit(relax.op.reshape(found, several)) if extents(found) != several else found


def _quantize(axis_at: int | None) -> Converter:
    """Arguments are input, scale, zero point, [axis], least and largest number, type."""
    last = 3 if axis_at is None else 4

    def convert(node: Any, importer: Any) -> Any:
        emit = importer.block_builder.emit
        data, scale, zero = importer.env[node.args[0]], node.args[1], node.args[2]
        low, high = int(node.args[last]), int(node.args[last + 1])
        dtype = _small(node, _dtype(given(node, last + 2, "dtype")))
        made = emit(
            relax.op.quantize(
                data,
                _scale(importer, scale),
                _zero(importer, zero),
                axis=_axis(node, data, axis_at),
                out_dtype=dtype,
            )
        )
        limits = torch.iinfo(getattr(torch, dtype))
        # What is inside of some bounds stays there when it is rounded.
        if low > limits.min:
            made = emit(relax.op.maximum(made, relax.const(low, dtype)))
        if high < limits.max:
            made = emit(relax.op.minimum(made, relax.const(high, dtype)))
        return made

    return convert


def _dequantize(axis_at: int | None) -> Converter:
    def convert(node: Any, importer: Any) -> Any:
        data = importer.env[node.args[0]]
        made = relax.op.dequantize(
            data,
            _scale(importer, node.args[1]),
            _zero(importer, node.args[2]),
            axis=_axis(node, data, axis_at),
        )
        wanted = node.kwargs.get("out_dtype")
        if wanted is not None and wanted != torch.float32:
            raise NotImplementedError(f"it gives {_dtype(wanted)}")
        return importer.block_builder.emit(made)

    return convert


def _axis(node: Any, data: Any, axis_at: int | None) -> int:
    rank = len(extents(data))
    return 0 if axis_at is None else int(node.args[axis_at]) % max(rank, 1)


def _small(node: Any, dtype: str) -> str:
    if dtype not in _INTEGERS:
        raise NotImplementedError(f"{node.target.__name__} makes {dtype}")
    return dtype


def _chosen(node: Any, importer: Any) -> Any:
    """``choose_qparams.tensor``: scale and zero point of a range that is computed."""
    emit = importer.block_builder.emit
    data = importer.env[node.args[0]]
    low, high, epsilon = int(node.args[1]), int(node.args[2]), float(node.args[3])

    def number(value: float) -> Any:
        return relax.const(np.float32(value), "float32")

    least = emit(relax.op.minimum(emit(relax.op.min(data)), number(0)))
    most = emit(relax.op.maximum(emit(relax.op.max(data)), number(0)))
    span = emit(relax.op.subtract(most, least))
    scale = emit(relax.op.divide(span, number(high - low)))
    scale = emit(relax.op.maximum(scale, number(epsilon)))
    steps = emit(relax.op.round(emit(relax.op.divide(least, scale))))
    zero = emit(relax.op.subtract(number(low), steps))
    bounds = (tvm.tirx.const(float(one), "float32") for one in (low, high))
    zero = emit(relax.op.astype(emit(relax.op.clip(zero, *bounds)), "int64"))
    return relax.Tuple([scale, zero])


CONVERTERS: dict[str, Callable[..., Any]] = {
    **{f"quantize_per_tensor.{name}": _quantize(None) for name in ("default", "tensor")},
    **{f"dequantize_per_tensor.{name}": _dequantize(None) for name in ("default", "tensor")},
    "quantize_per_channel.default": _quantize(3),
    "dequantize_per_channel.default": _dequantize(3),
    "choose_qparams.tensor": _chosen,
}
"""Converters by the name of the operator."""

"""Converters of ONNX operators that TVM's importer lacks or misreads.

Each takes a ``Node``, and returns a Relax expression or a list of outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from chameleon_tvm.api import UINT8, tvm
from numpy.typing import NDArray
from tvm.relax.frontend.onnx.onnx_frontend import _get_convert_map

from chameleon_networks._graph.constants import constant_of
from chameleon_networks._graph.relax_utils import relax
from chameleon_networks._importers.onnx import nodes
from chameleon_networks._importers.onnx.arithmetic import ARITHMETIC, KERNEL_DTYPES, TRAINING
from chameleon_networks._importers.onnx.control_flow import CONTROL_FLOW
from chameleon_networks._importers.onnx.data_movement import DATA_MOVEMENT
from chameleon_networks._importers.onnx.emulated_types import (
    E8M0,
    EMULATED,
    SMALL_INTEGERS,
    Emulated,
    round_to_dtype,
)
from chameleon_networks._importers.onnx.images import IMAGES
from chameleon_networks._importers.onnx.nodes import (
    STANDARD_DOMAINS,
    Node,
    NodeError,
    dtype_of,
    scalar,
    schema_of,
    shape_of,
)
from chameleon_networks._importers.onnx.quantized_operators import ONNXRUNTIME_DOMAIN
from chameleon_networks._importers.onnx.recurrent import RECURRENT
from chameleon_networks._importers.onnx.signals import SIGNALS

op = relax.op


def _one_hot(node: Node) -> Any:
    """``OneHot`` with the dtype of its two values; TVM's importer would make the result 64-bit."""
    indices = node[0]
    [count], [off, on] = node.integers(1), node.value(2)
    if np.issubdtype(dtype_of(indices), np.floating):
        indices = node.emit(op.astype(indices, "int64"))
    negative = indices < scalar(0, indices)
    positions = node.emit(op.where(negative, indices + scalar(count, indices), indices))
    values = (tvm.tirx.const(value.item(), str(value.dtype)) for value in (on, off))
    axis = nodes.normalize_axis(int(node.attributes["axis"]), len(shape_of(indices)) + 1)
    return op.one_hot(positions, *values, count, axis)


def _cast(node: Node) -> Any:
    dtype = nodes.dtype_name(node.attributes["to"])
    value = node[0]
    if dtype in EMULATED:
        if dtype_of(value) == "float64":
            value = node.emit(op.astype(value, "float32"))
        mode = str(node.attributes.get("round_mode", "up")) if dtype == E8M0 else "nearest"
        saturate = bool(node.attributes.get("saturate", 1))
        return round_to_dtype(node.builder, value, dtype, saturate=saturate, mode=mode)
    if dtype not in KERNEL_DTYPES:
        raise NodeError(f"it casts to {dtype}")
    if dtype == "bool":
        return op.not_equal(value, scalar(0, value))
    return op.astype(value, dtype)


def _broadcast_parameter(node: Node, parameter: Any) -> Any:
    """A scale or a zero point, reshaped so that it broadcasts to the numbers of a tensor."""
    shape, extents = shape_of(node[0]), shape_of(parameter)
    if np.prod(extents) == 1:
        return op.reshape(parameter, [])
    axis = nodes.normalize_axis(int(node.attributes.get("axis", 1)), len(shape))
    block = int(node.attributes.get("block_size") or 0)
    if not block:
        return op.reshape(parameter, [-1 if at == axis else 1 for at in range(len(shape))])
    if nodes.is_constant(parameter):  # so that weights become constant numbers
        wide = np.repeat(nodes.constant_value(parameter), block, axis)
        return constant_of(wide.take(range(shape[axis]), axis))
    wide = node.emit(op.repeat(parameter, block, axis))
    return op.strided_slice(wide, [axis], [0], [shape[axis]])


def _is_supported_by_tvm(node: Node, dtype: str) -> bool:
    """Whether TVM's importer supports the form of a quantization node."""
    of_few_bits = dtype in EMULATED or any(name in EMULATED for name in node.emulated_dtypes)
    return not of_few_bits and not node.attributes.get("block_size")


def _quantize(node: Node) -> Any:
    x, scale, zero = node[0], node[1], node[2]
    number = node.attributes.get("output_dtype")
    if zero is not None:
        dtype = node.emulated_dtypes[2] or dtype_of(zero)
    else:
        dtype = nodes.dtype_name(number) if number else UINT8
    if _is_supported_by_tvm(node, dtype):
        return NotImplemented
    ratio = node.emit(x / _broadcast_parameter(node, scale))
    if dtype in EMULATED and dtype not in SMALL_INTEGERS:
        if zero is not None:
            ratio = node.emit(ratio + _broadcast_parameter(node, zero))
        return round_to_dtype(
            node.builder, ratio, dtype, saturate=bool(node.attributes["saturate"])
        )
    steps = node.emit(op.round(ratio))
    if zero is not None:
        steps = node.emit(steps + op.astype(_broadcast_parameter(node, zero), "float32"))
    limits = ml_dtypes.iinfo(dtype)
    low, high = (scalar(int(limit), steps) for limit in (limits.min, limits.max))
    inside = op.minimum(op.maximum(steps, low), high)
    if dtype in SMALL_INTEGERS:
        return Emulated(node.emit(op.astype(inside, SMALL_INTEGERS[dtype])), dtype)
    return op.astype(inside, dtype)


def _dequantize(node: Node) -> Any:
    x, scale, zero = node[0], node[1], node[2]
    rank, axis = len(shape_of(x)), int(node.attributes.get("axis", 1))
    # With a single scale, the axis may be out of range for a vector.
    if _is_supported_by_tvm(node, dtype_of(x)) and (axis == 1 or -rank <= axis < rank):
        return NotImplemented
    numbers = op.astype(x, "float32")
    if zero is not None:
        numbers = numbers - op.astype(_broadcast_parameter(node, zero), "float32")
    real = node.emit(numbers * _broadcast_parameter(node, scale))
    number = node.attributes.get("output_dtype")
    dtype = nodes.dtype_name(number) if number else node.emulated_dtypes[1]
    return round_to_dtype(node.builder, real, dtype) if dtype in EMULATED else real


def _dynamic_quantize(node: Node) -> list[Any]:
    """``DynamicQuantizeLinear``; TVM's importer would divide by the range of zeros alone."""
    x, zero = node[0], scalar(0, node[0])
    least = node.emit(op.minimum(zero, op.min(x)))
    spread = node.emit(op.maximum(zero, op.max(x)) - least)
    scale = node.emit(op.where(op.equal(spread, zero), scalar(1, x), spread / scalar(255, x)))
    point = node.emit(op.astype(op.round(op.clip(zero - least / scale, 0, 255)), UINT8))
    return [op.quantize(x, scale, point, axis=0, out_dtype=UINT8), scale, point]


def _unpacked(packed: NDArray[Any], bits: int) -> NDArray[Any]:
    """The numbers of ``bits`` bits in each row of an array of bytes, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.ubyte)
    numbers = packed[..., None] >> shifts & (2**bits - 1)
    return np.asarray(numbers.reshape(*packed.shape[:-1], -1))


def _matmul_of_few_bits(node: Node) -> Any:
    """``MatMulNBits``: the product with weights whose blocks have a scale and a zero point."""
    x, options = node[0], node.attributes
    depth, columns, block = (int(options[name]) for name in ("K", "N", "block_size"))
    bits = int(options.get("bits", 4))
    if bits not in _PACKED_BITS:
        raise NodeError(f"its weights have {bits} bits")
    blocks = -(-depth // block)
    packed = node.value(1).view(np.ubyte).reshape(columns, blocks, -1)
    numbers = _unpacked(packed, bits)[..., :block].reshape(columns, -1)[:, :depth]
    scales = node.value(2).reshape(columns, blocks).astype(np.float32)
    zeros, groups, bias = node.known(3), node.known(4), node[5]
    if zeros is None:
        zeros = np.full((columns, blocks), 2 ** (bits - 1), np.ubyte)
    elif zeros.dtype == np.ubyte:
        zeros = _unpacked(zeros.reshape(columns, -1), bits)[:, :blocks]
    zeros = zeros.reshape(columns, blocks).astype(np.float32)
    group = np.arange(depth) // block if groups is None else groups
    weights = (numbers - zeros[:, group]) * scales[:, group]
    y = op.matmul(x, relax.const(np.ascontiguousarray(weights.T), dtype_of(x)))
    return y if bias is None else node.emit(y) + bias


_PACKED_BITS = (2, 4, 8)
"""Numbers of bits that divide a byte."""


CONVERTERS: dict[str, Callable[[Node], Any]] = {
    **ARITHMETIC,
    **IMAGES,
    **DATA_MOVEMENT,
    **RECURRENT,
    **SIGNALS,
    **TRAINING,
    "Cast": _cast,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "MatMulNBits": _matmul_of_few_bits,
    "OneHot": _one_hot,
    "QuantizeLinear": _quantize,
}
"""Converters by operator."""


DOMAINS = STANDARD_DOMAINS | {ONNXRUNTIME_DOMAIN, "ai.onnx.ml", "ai.onnx.preview.training"}
"""The domains of the operators that ``CONVERTERS`` names."""

ONNXRUNTIME_HINT = (
    "It is none of the standard's, but onnxruntime's own: save the network before onnxruntime "
    "fuses it, and quantize it in the QDQ format (quant_format=QuantFormat.QDQ)."
)
"""The hint if only ONNX Runtime has an operator."""


def has_operator(node: Any) -> bool:
    """Whether an operator has a converter or a function of the standard, by its name."""
    # ONNX's reference computes operators that read only constant inputs.
    operators = {*_get_convert_map(), *CONVERTERS, *CONTROL_FLOW, *nodes.CONSTANT_INPUTS}
    if node.op_type in operators and node.domain in DOMAINS:
        return True
    schema = schema_of(node, node.domain)
    return bool(schema and (schema.has_function or schema.has_context_dependent_function))

"""Quantization of ONNX that TVM's importer has no form of: by blocks, and to types of few bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from chameleon_networks.graph.relaxed import relax
from chameleon_networks.importers.onnx.nodes import Node, dtype_of, positive, scalar, shape_of
from chameleon_networks.importers.onnx.typed import INTEGERS, TYPES, Typed, rounded

op = relax.op


def _along(node: Node, parameter: Any) -> Any:
    """A scale or a zero point in a shape that is broadcast to the numbers."""
    shape, extents = shape_of(node[0]), shape_of(parameter)
    if np.prod(extents) == 1:
        return op.reshape(parameter, [])
    axis = positive(int(node.attributes.get("axis", 1)), len(shape))
    block = int(node.attributes.get("block_size") or 0)
    if not block:
        return op.reshape(parameter, [-1 if at == axis else 1 for at in range(len(shape))])
    wide = node.emit(op.repeat(parameter, block, axis))
    return op.strided_slice(wide, [axis], [0], [shape[axis]])


def _is_ordinary(node: Node, kind: str) -> bool:
    """Whether TVM's importer has the form."""
    of_few_bits = kind in TYPES or any(name in TYPES for name in node.kinds if name)
    return not of_few_bits and not node.attributes.get("block_size")


def _quantize(node: Node) -> Any:
    x, scale, zero = node[0], node[1], node[2]
    number = node.attributes.get("output_dtype")
    if zero is not None:
        kind = node.kinds[2] or dtype_of(zero)
    else:
        kind = node.named_type(number) if number else "uint8"
    if _is_ordinary(node, kind):
        return NotImplemented
    ratio = node.emit(op.divide(x, _along(node, scale)))
    if kind in TYPES and kind not in INTEGERS:
        if zero is not None:
            ratio = node.emit(op.add(ratio, _along(node, zero)))
        return rounded(node.builder, ratio, kind, saturate=bool(node.attributes["saturate"]))
    steps = node.emit(op.round(ratio))
    if zero is not None:
        wide = op.astype(node.emit(_along(node, zero)), "float32")
        steps = node.emit(op.add(steps, wide))
    signed, bits = not kind.startswith("u"), int(kind.lstrip("uint"))
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    inside = op.minimum(op.maximum(steps, scalar(low, steps)), scalar(high, steps))
    if kind in INTEGERS:
        return Typed(node.emit(op.astype(inside, INTEGERS[kind])), kind)
    return op.astype(inside, kind)


def _dequantize(node: Node) -> Any:
    x, scale, zero = node[0], node[1], node[2]
    if _is_ordinary(node, dtype_of(x)):
        return NotImplemented
    numbers = op.astype(x, "float32")
    if zero is not None:
        numbers = op.subtract(numbers, op.astype(node.emit(_along(node, zero)), "float32"))
    real = node.emit(op.multiply(numbers, _along(node, scale)))
    number = node.attributes.get("output_dtype")
    kind = node.named_type(number) if number else node.kinds[1]
    return rounded(node.builder, real, kind) if kind in TYPES else real


QUANTIZING: Mapping[str, Callable[[Node], Any]] = {
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
}
"""Converters by kind of node; ``NotImplemented`` leaves a node to TVM's."""

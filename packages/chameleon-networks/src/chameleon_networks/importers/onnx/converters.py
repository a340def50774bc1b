"""Converters of ONNX's operators that TVM's importer lacks, or converts to something else.

Each takes a ``Node`` and returns an expression, or a list of one for each output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from chameleon_tvm.quick_tvm import tvm

from chameleon_networks.graph.relaxed import relax
from chameleon_networks.importers.onnx.arithmetic import ARITHMETIC
from chameleon_networks.importers.onnx.images import IMAGES
from chameleon_networks.importers.onnx.nodes import (
    Node,
    Unsupported,
    dtype_of,
    positive,
    scalar,
    shape_of,
)
from chameleon_networks.importers.onnx.normalizing import NORMALIZING
from chameleon_networks.importers.onnx.quantizing import QUANTIZING
from chameleon_networks.importers.onnx.recurrent import RECURRENT
from chameleon_networks.importers.onnx.resizing import RESIZING
from chameleon_networks.importers.onnx.shaping import SHAPING
from chameleon_networks.importers.onnx.signals import SIGNALS
from chameleon_networks.importers.onnx.training import TRAINING
from chameleon_networks.importers.onnx.typed import E8M0, TYPES, rounded

op = relax.op

KERNEL_TYPES = frozenset(
    (
        *("bool", "float32", "float64", "int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64"),
    )
)
"""Types that kernels compute in."""


def _one_hot(node: Node) -> Any:
    """Numbers have the type of the two values, which TVM's importer makes 64 bits wide."""
    indices = node[0]
    [count], [off, on] = node.integers(1), node.value(2)
    if np.issubdtype(dtype_of(indices), np.floating):
        indices = node.emit(op.astype(indices, "int64"))
    negative = op.less(indices, scalar(0, indices))
    places = node.emit(op.where(negative, op.add(indices, scalar(count, indices)), indices))
    given = (tvm.tirx.const(value.item(), str(value.dtype)) for value in (on, off))
    axis = positive(int(node.attributes["axis"]), len(shape_of(indices)) + 1)
    return op.one_hot(places, *given, count, axis)


def _cast(node: Node) -> Any:
    kind = node.named_type(node.attributes["to"])
    value = node[0]
    if kind in TYPES:
        if dtype_of(value) == "float64":
            value = node.emit(op.astype(value, "float32"))
        mode = str(node.attributes.get("round_mode", "up")) if kind == E8M0 else "nearest"
        saturate = bool(node.attributes.get("saturate", 1))
        return rounded(node.builder, value, kind, saturate=saturate, mode=mode)
    if kind not in KERNEL_TYPES:
        raise Unsupported(f"it casts to {kind}")
    if kind == "bool":
        return op.not_equal(value, scalar(0, value))
    return op.astype(value, kind)


CONVERTERS: dict[str, Callable[[Node], Any]] = {
    **ARITHMETIC,
    **IMAGES,
    **NORMALIZING,
    **QUANTIZING,
    **SHAPING,
    **RECURRENT,
    **RESIZING,
    **SIGNALS,
    **TRAINING,
    "Cast": _cast,
    "OneHot": _one_hot,
}
"""By kind of node."""

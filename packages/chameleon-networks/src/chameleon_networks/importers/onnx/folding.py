"""Nodes of constants, computed by ONNX's own reference when a network is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from chameleon_tvm.words import first_line
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from chameleon_networks.importers.onnx.nodes import (
    Unsupported,
    Value,
    is_constant,
    known_array,
    relax_constant,
)

_NOT_FOLDED = frozenset(
    (
        *("QuantizeLinear", "DequantizeLinear", "Bernoulli", "Multinomial", "Dropout"),
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    )
)
"""Steps of quantization stay steps, and random numbers are drawn anew each time."""


def is_folded(node: Any, inputs: Sequence[Value]) -> bool:
    """Whether a node reads constants alone, and gives the same each time."""
    return node.op_type not in _NOT_FOLDED and all(
        value is None or is_constant(value) for value in inputs
    )


def _model_of(node: Any, opset: int) -> Any:
    """A model of one node: the reference reads a node alone as one of the newest version."""
    inputs, outputs = (
        [onnx.helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(names) if name]
        for names in (node.input, node.output)
    )
    graph = onnx.helper.make_graph([node], "node", inputs, outputs)
    opsets = [onnx.helper.make_opsetid(domain, opset) for domain in {node.domain, ""}]
    return onnx.helper.make_model(graph, opset_imports=opsets)


def evaluated(node: Any, inputs: Sequence[Value], opset: int) -> list[Value]:
    """The outputs of a node that reads constants alone, computed by ONNX's reference."""
    feeds = {
        name: known_array(value)
        for name, value in zip(node.input, inputs, strict=True)
        if value is not None
    }
    try:
        with np.errstate(all="ignore"):
            made = ReferenceEvaluator(_model_of(node, opset)).run(None, feeds)
    except Exception as error:
        raise Unsupported(f"ONNX's reference cannot compute it: {first_line(error)}") from error
    given = iter(
        [relax_constant(part) for part in value]
        if isinstance(value, list)
        else relax_constant(value)
        for value in made
    )
    return [next(given) if name else None for name in node.output]


def dense(sparse: Any) -> NDArray[Any]:
    """The numbers of a sparse tensor."""
    values, places = map(onnx.numpy_helper.to_array, (sparse.values, sparse.indices))
    made = np.zeros(list(sparse.dims), values.dtype)
    if places.ndim == 1:
        made.reshape(-1)[places] = values
    else:
        made[tuple(places.T)] = values
    return made

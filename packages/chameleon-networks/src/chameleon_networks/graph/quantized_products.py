"""Batches of products of two quantized tensors as chains of int8, quantized again in the kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.errors import ConfigError
from chameleon_tvm.operators.quantized_products import QuantizedProduct
from chameleon_tvm.operators.specs import BatchMatmulSpec

from chameleon_networks.graph.fused_operators import FusedOperator
from chameleon_networks.graph.quantized_operators import DATA, WEIGHTS, is_data, quantized_after
from chameleon_networks.graph.quantized_steps import DEQUANTIZE, step_of


def product_in_integers(
    chain: FusedOperator, values: Mapping[Any, Any], users: Mapping[Any, Sequence[Any]]
) -> FusedOperator:
    """A batch of products of float32 as one of int8 where both sides are dequantized, else itself.

    That is what ONNX's ``QLinearMatMul`` computes of two tensors.

    Args:
        chain: one of float32.
        values: of all variables.
        users: the bindings that read each variable; None among them for the function's result.
    """
    spec = chain.spec
    if not isinstance(spec, BatchMatmulSpec) or spec.dtype != "float32":
        return chain
    left, right = (step_of(values.get(one), DEQUANTIZE) for one in chain.inputs)
    if left is None or right is None or not is_data(left) or not is_data(right):
        return chain
    output, passed = quantized_after(chain.last, users)
    scale = np.float32(left.scale[0]) * np.float32(right.scale[0])
    if output is not None:
        scale = scale / np.float32(output.scale[0])
    numbers = QuantizedProduct(
        left_zero_point=float(left.zero_point[0]),
        right_zero_point=float(right.zero_point[0]),
        scale=float(scale),
        out_zero_point=float(output.zero_point[0]) if output is not None else 0.0,
    )
    written = "float32" if output is None else DATA
    try:
        small = attrs.evolve(spec, dtype=WEIGHTS, output_dtype=written)
    except ConfigError:
        return chain  # its sums may pass 32 bits
    return attrs.evolve(
        chain,
        spec=small,
        inputs=(left.source, right.source),
        constants=(numbers.array,),
        members=(*chain.members, *passed),
    )

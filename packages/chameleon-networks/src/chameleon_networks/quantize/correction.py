"""Rounded weights, and biases corrected for what rounding them shifts.

Nagel et al., arXiv 1906.04721, section 4.2: the mean of an output channel is off by the weights'
errors times the means of the input channels, summed, which the bias can take back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from chameleon_tvm.operators.layouts import is_channels_last
from chameleon_tvm.operators.specs import ConvolutionSpec
from chameleon_tvm.types import COMPUTE, FLOAT32
from numpy.typing import NDArray

from chameleon_networks.graph.fused_operators import Constants, FusedOperator
from chameleon_networks.quantize.weights import quantized_weights

Means = Mapping[str, NDArray[Any]]
"""Of each channel of tensors, by the tensors' names."""


def channel_means(chain: FusedOperator, data: NDArray[Any]) -> NDArray[np.float64]:
    """The mean of each channel of what a chain with weights reads, shape (channels,)."""
    spec = chain.spec
    first = isinstance(spec, ConvolutionSpec) and not is_channels_last(spec.layout)
    moved = np.moveaxis(data, 1, -1) if first else data
    means: NDArray[np.float64] = moved.reshape(-1, moved.shape[-1]).mean(axis=0, dtype=np.float64)
    return means


def constants_in(chain: FusedOperator, kind: str, mean: NDArray[Any] | None = None) -> Constants:
    """A chain's constants in a type: rounded weights, and the bias where there is one.

    Args:
        chain: one with weights, or of float32.
        kind: the type.
        mean: of each channel of its data; None where the bias is to stay.

    Returns:
        All in float32.
    """
    weights, bias = chain.constants.weights, chain.constants.bias
    if kind == FLOAT32 or weights is None:
        return chain.constants
    made = _rounded(weights, kind)
    if mean is not None and bias is not None:
        bias = (bias - _shift(chain, made - weights, mean)).astype(np.float32)
    return Constants(weights=made, bias=bias)


def _rounded(weights: NDArray[Any], kind: str) -> NDArray[np.float32]:
    if COMPUTE[kind].quantized:
        return quantized_weights(weights, kind).real
    return COMPUTE[kind].weights.rounded(weights)


def _shift(chain: FusedOperator, errors: NDArray[Any], mean: NDArray[Any]) -> NDArray[np.float64]:
    """How far the mean of each output channel is off, shape (output channels,).

    Args:
        chain: whose weights have errors.
        errors: of the weights, output channels first, then the input channels of a group.
        mean: of each input channel.
    """
    groups = chain.spec.group_count if isinstance(chain.spec, ConvolutionSpec) else 1
    outputs, inputs = errors.shape[:2]
    summed = errors.reshape(outputs, inputs, -1).sum(axis=2, dtype=np.float64)
    by_group = summed.reshape(groups, outputs // groups, inputs)
    found: NDArray[np.float64] = np.einsum("goi,gi->go", by_group, mean.reshape(groups, inputs))
    return found.reshape(outputs)

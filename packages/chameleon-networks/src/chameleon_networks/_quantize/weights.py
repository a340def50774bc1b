"""Rounds weights, and corrects biases for the shift of each channel's mean.

Scales are symmetric, one for each output channel (Nagel et al., arXiv 1906.04721, section 4.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import FLOAT32, ConfigError
from chameleon_tvm.api import COMPUTE, ConvolutionSpec, StorageType, is_channels_last
from numpy.typing import NDArray

from chameleon_networks._graph.fusion_groups import Constants, FusionGroup
from chameleon_networks._graph.quantization import QParams
from chameleon_networks._graph.relax_utils import relax

Means = Mapping[str, NDArray[Any]]
"""The mean of each channel of tensors, by the tensors' names."""

_TINY = np.finfo(np.float32).tiny


@attrs.frozen(kw_only=True, eq=False)
class QuantizedWeights:
    """Weights quantized to integers.

    Attributes:
        values: The integers, output channels first.
        scales: The float32 scale of each output channel.
    """

    values: NDArray[Any]
    scales: NDArray[np.float32]

    @property
    def dequantized(self) -> NDArray[np.float32]:
        """The weights in float32."""
        axes = (1,) * (self.values.ndim - 1)
        return self.values.astype(np.float32) * self.scales.reshape(-1, *axes)

    def qparams(self, axis: int) -> QParams:
        """The quantization parameters of a constant with these weights."""
        return QParams(
            source=relax.const(np.ascontiguousarray(np.moveaxis(self.values, 0, axis))),
            dtype=self.values.dtype.name,
            scale=self.scales,
            zero_point=np.zeros(self.scales.shape, np.int64),
            axis=axis,
        )


def quantize_weights(weights: NDArray[Any], kind: StorageType) -> QuantizedWeights:
    """Quantize weights to integers."""
    if not np.isfinite(weights).all():
        raise ConfigError(
            "there are infinities or NaN among weights, which have no range then",
            hint="Fix the weights.",
        )
    largest_integer = kind.symmetric
    flat = weights.reshape(len(weights), -1)
    largest = np.abs(flat).max(axis=1, initial=0.0).astype(np.float32)
    scales = np.where(largest > 0, np.maximum(largest / np.float32(largest_integer), _TINY), 1.0)
    scales = scales.astype(np.float32)
    values = np.clip(np.rint(flat / scales[:, None]), -largest_integer, largest_integer).astype(
        kind.storage_dtype
    )
    return QuantizedWeights(values=values.reshape(weights.shape), scales=scales)


def placeholder_weights(weights: NDArray[Any], kind: StorageType) -> QuantizedWeights:
    """Weights of the right shape and dtype with equal values, to find operators' dtypes."""
    values = np.full(weights.shape, kind.symmetric, kind.storage_dtype)
    return QuantizedWeights(values=values, scales=np.ones(len(weights), np.float32))


def overflows(values: NDArray[Any], kind: StorageType) -> bool:
    """Whether any finite number becomes infinite when it is converted to a dtype."""
    # Rounding is monotonic, so that the extremes suffice.
    ends = np.array([values.min(initial=0.0), values.max(initial=0.0)], np.float32)
    if not np.isfinite(ends).all():
        finite = values[np.isfinite(values)]
        ends = np.array([finite.min(initial=0.0), finite.max(initial=0.0)], np.float32)
    return not bool(np.isfinite(kind.rounded(ends)).all())


def channel_means(fusion: FusionGroup, data: NDArray[Any]) -> NDArray[np.float64]:
    """The mean of each channel of a fusion group's data, of shape (channels,)."""
    spec = fusion.spec
    first = isinstance(spec, ConvolutionSpec) and not is_channels_last(spec.layout)
    channels_last = np.moveaxis(data, 1, -1) if first else data
    means: NDArray[np.float64] = channels_last.reshape(-1, channels_last.shape[-1]).mean(
        axis=0, dtype=np.float64
    )
    return means


def constants_for(fusion: FusionGroup, kind: str, mean: NDArray[Any] | None = None) -> Constants:
    """The constants of a fusion group in a dtype: rounded weights, and the bias if there is one."""
    weights, bias = fusion.constants.weights, fusion.constants.bias
    if kind == FLOAT32 or weights is None:
        return fusion.constants
    storage = COMPUTE[kind].weights
    rounded = (
        quantize_weights(weights, storage).dequantized
        if storage.whole
        else storage.rounded(weights)
    )
    if mean is not None and bias is not None:
        bias = (bias - _mean_shift(fusion, rounded - weights, mean)).astype(np.float32)
    return Constants(weights=rounded, bias=bias)


def _mean_shift(
    fusion: FusionGroup, errors: NDArray[Any], mean: NDArray[Any]
) -> NDArray[np.float64]:
    """The shift of the mean of each output channel, of shape (output channels,)."""
    groups = fusion.spec.group_count if isinstance(fusion.spec, ConvolutionSpec) else 1
    outputs, inputs = errors.shape[:2]
    summed = errors.reshape(outputs, inputs, -1).sum(axis=2, dtype=np.float64)
    by_group = summed.reshape(groups, outputs // groups, inputs)
    shift: NDArray[np.float64] = np.einsum("goi,gi->go", by_group, mean.reshape(groups, inputs))
    return shift.reshape(outputs)

"""Weights of eight or seven bits: symmetric, with a scale for every output channel."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from chameleon_core.errors import ConfigError
from chameleon_tvm.types import INT8, STORAGE
from numpy.typing import NDArray

_TINY = np.finfo(np.float32).tiny


@attrs.frozen(kw_only=True, eq=False)
class ChannelWeights:
    """Weights as whole numbers.

    Attributes:
        values: int8, output channels first.
        scales: float32, what one is worth in each output channel.
    """

    values: NDArray[np.int8]
    scales: NDArray[np.float32]

    @property
    def real(self) -> NDArray[np.float32]:
        """The weights in float32."""
        axes = (1,) * (self.values.ndim - 1)
        return self.values.astype(np.float32) * self.scales.reshape(-1, *axes)


def quantized_weights(weights: NDArray[Any], kind: str = INT8) -> ChannelWeights:
    """Weights rounded to eight bits or seven.

    Args:
        weights: output channels first.
        kind: ``int8`` or ``int7``.

    Raises:
        ConfigError: one is infinite or not a number.
    """
    if not np.isfinite(weights).all():
        raise ConfigError(
            "there are infinities or NaN among weights, which have no range then",
            hint="Mend the weights.",
        )
    most = STORAGE[kind].symmetric
    flat = weights.reshape(len(weights), -1)
    largest = np.abs(flat).max(axis=1, initial=0.0).astype(np.float32)
    scales = np.where(largest > 0, np.maximum(largest / np.float32(most), _TINY), 1.0)
    scales = scales.astype(np.float32)
    values = np.clip(np.rint(flat / scales[:, None]), -most, most)
    values = values.astype(STORAGE[kind].storage_dtype)
    return ChannelWeights(values=values.reshape(weights.shape), scales=scales)


def sketched_weights(weights: NDArray[Any], kind: str = INT8) -> ChannelWeights:
    """Weights of which only the bits that they take are right, at hardly any cost.

    Args:
        weights: output channels first.
        kind: ``int8`` or ``int7``.
    """
    values = np.full(weights.shape, STORAGE[kind].symmetric, STORAGE[kind].storage_dtype)
    return ChannelWeights(values=values, scales=np.ones(len(weights), np.float32))

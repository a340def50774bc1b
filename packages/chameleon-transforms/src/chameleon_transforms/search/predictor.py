"""Predicts the seconds of operators that were not measured from those that were."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from chameleon_transforms.nest.tasks import Spec

_RATE = 5e10
"""Multiply-adds in a second, and bytes in a second: only where a search begins, for the order."""
_CALL = 2e-6
"""Seconds that a kernel takes however small it is."""
_RIDGE = 1.0
_WORD = 4


def prior(spec: Spec) -> float:
    """Seconds of an operator at a rate that all have, for a start."""
    touched = np.prod(spec.input) + np.prod(spec.result_shape) + np.prod(spec.filter_shape)
    return float(spec.flop / 2.0 / _RATE + _WORD * touched / _RATE + _CALL)


def features(spec: Spec) -> NDArray[np.float64]:
    """What the speed of an operator depends on, shape (10,)."""
    outputs, channels, *kernel = spec.filter_shape
    rows, columns = spec.result_shape[2:]
    strided = max(spec.strides) > 1
    taps = int(np.prod(kernel))
    tiled = taps > 1 and not strided and spec.group_count == 1
    return np.array(
        [
            1.0,
            np.log2(channels),
            np.log2(outputs // spec.group_count),
            np.log2(outputs),
            np.log2(rows * columns),
            np.log2(taps),
            float(strided),
            float(spec.group_count > 1),
            float(channels == 1),
            float(tiled),
        ]
    )


class OperatorPredictor:
    """Ridge regression of the logarithm of seconds over those of ``prior``."""

    def __init__(self) -> None:
        self._weights = np.zeros(10)

    def fit(self, measured: Mapping[Spec, float]) -> None:
        """Learn from finite times of operators."""
        kept = {spec: seconds for spec, seconds in measured.items() if np.isfinite(seconds)}
        if not kept:
            return
        rows = np.stack([features(spec) for spec in kept])
        wanted = np.array([np.log(seconds / prior(spec)) for spec, seconds in kept.items()])
        penalty = _RIDGE * np.eye(rows.shape[1])
        penalty[0, 0] = 1e-6  # a common factor is learnt from the first time on
        self._weights = np.linalg.solve(rows.T @ rows + penalty, rows.T @ wanted)

    def seconds(self, spec: Spec) -> float:
        """Of one operator."""
        return prior(spec) * float(np.exp(np.clip(features(spec) @ self._weights, -5.0, 5.0)))

"""A last layer fitted to few measurements, by Bayesian linear regression on what is read out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

_NOISES = (0.03, 0.1, 0.3, 1.0)
"""Variances of the noise to choose from, over that of what the network gets wrong."""

_OFFSET = 10.0
"""Deviation of the offset over that: only configurations of one task are ever compared, so that a
network learns next to nothing about the level."""


class LastLayer:
    """What a network gets wrong about a task, as a linear function of what it reads out.

    The posterior of a normal prior on the weights (Bishop 2006, section 3.3). The prior's variance
    is the uncertainty that the network predicts; the noise's is the most likely of a few.

    Args:
        representation: of the measured configurations, shape (n, width).
        missing: the logarithm of their relative throughput less its prediction, shape (n,).
        deviation: mean predicted standard deviation.
    """

    def __init__(self, representation: Numbers, missing: Numbers, *, deviation: float) -> None:
        self._deviation = max(deviation, 1e-6)
        inputs = self._inputs(representation, offset=_OFFSET)
        best = -np.inf
        for noise in _NOISES:
            covariance = inputs @ inputs.T + noise * self._deviation**2 * np.eye(len(inputs))
            factor = np.linalg.cholesky(covariance)
            half = np.linalg.solve(factor, missing)
            evidence = -0.5 * float(half @ half) - float(np.log(np.diagonal(factor)).sum())
            if evidence > best:
                best, self._factor, self._half = evidence, factor, half
        self._measured = inputs

    def moments(self, representation: Numbers) -> tuple[Numbers, Numbers]:
        """Mean and standard deviation of what is missing from predictions, shape (n,) each."""
        inputs = self._inputs(representation, offset=_OFFSET)
        shared = np.linalg.solve(self._factor, self._measured @ inputs.T)
        # The offset is the same for all: that it is uncertain says nothing about one of them.
        own = self._inputs(representation, offset=0.0)
        explained = np.linalg.solve(self._factor, self._measured @ own.T)
        variance = (own**2).sum(axis=1) - (explained**2).sum(axis=0)
        return shared.T @ self._half, np.sqrt(np.maximum(variance, 0.0))

    def _inputs(self, representation: Numbers, *, offset: float) -> Numbers:
        """Representations scaled to the prior, with a column for the offset."""
        column = np.full((len(representation), 1), offset)
        scaled = representation / np.sqrt(representation.shape[1])
        return self._deviation * np.concatenate([scaled, column], axis=1)


__all__ = ["LastLayer"]

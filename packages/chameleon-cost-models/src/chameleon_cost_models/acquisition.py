"""Acquisition functions: how much a configuration is worth measuring, by mean and uncertainty."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Numbers = NDArray[np.float64]

Acquisition = Callable[[Numbers, Numbers, float, float], Numbers]
"""Mean (n,), standard deviation (n,), best observed, kappa -> worth (n,); higher is better."""

_LEAST_STD = 1e-9
"""Standard deviations below count as this one, so that certain predictions stay comparable."""


def mean_alone(mean: Numbers, _std: Numbers, _best: float, _kappa: float) -> Numbers:
    """The prediction: no exploration."""
    return mean


def upper_bound(mean: Numbers, std: Numbers, _best: float, kappa: float) -> Numbers:
    """Upper confidence bound, ``mean + kappa * std`` (Srinivas et al. 2010, algorithm 1)."""
    return mean + kappa * std


def expected_improvement(mean: Numbers, std: Numbers, best: float, _kappa: float) -> Numbers:
    """Expected improvement over the best observed (Jones et al. 1998, equation 15)."""
    std = np.maximum(std, _LEAST_STD)
    gain = (mean - best) / std
    density = np.exp(-0.5 * gain**2) / np.sqrt(2.0 * np.pi)
    improvement: Numbers = np.maximum(std * (gain * ndtr(gain) + density), 0.0)
    return improvement


ACQUISITIONS: Mapping[str, Acquisition] = {
    "mean": mean_alone,
    "ucb": upper_bound,
    "ei": expected_improvement,
}

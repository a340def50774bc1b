"""Inputs of cost models, computed from configurations and observations."""

from __future__ import annotations

import numpy as np
from chameleon_core.plugin_api import Configs, DesignSpace, Observations
from numpy.typing import NDArray

Features = NDArray[np.float32]
"""Features of configurations, shape (n, features); NaN is a missing value."""

THREADS = 1
"""The number of threads for fits and predictions.

With hundreds of rows, distributing work takes as long as the work itself.
"""


def features_of(space: DesignSpace, configs: Configs) -> Features:
    """Features of configurations, shape (n, features), with NaN for infinities."""
    features = space.features(configs)
    return np.where(np.isfinite(features), features, np.float32(np.nan))


def has_signal(observations: Observations) -> bool:
    """Whether at least two observations differ in throughput, so that a fitted model can rank."""
    quality = observations.relative_throughput
    return bool(len(quality)) and bool(np.ptp(quality) > 0.0)

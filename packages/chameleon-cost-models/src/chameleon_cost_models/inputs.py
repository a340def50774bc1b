"""The inputs of every tree model: finite features, and targets in which higher is better."""

from __future__ import annotations

import numpy as np
from chameleon_core.space import Configs, DesignSpace
from chameleon_core.stages import Observations
from numpy.typing import NDArray

Features = NDArray[np.float32]
"""Shape (n, features); NaN is a missing value."""

THREADS = 1
"""Threads of fits and predictions. Rows are hundreds here: handing out work costs as much as doing
it, and wherever another process holds a core for a moment, threads that wait for each other take
several times as long."""


def features_of(space: DesignSpace, configs: Configs) -> Features:
    """The space's features with infinities, which the tree libraries refuse, as missing values."""
    features = space.features(configs)
    return np.where(np.isfinite(features), features, np.float32(np.nan))


def teaches(observations: Observations) -> bool:
    """Whether two observations differ.

    A model of fewer would be a constant, and only make every walk believe that its first
    configurations are the best.
    """
    quality = observations.relative_throughput
    return bool(len(quality)) and bool(np.ptp(quality) > 0.0)

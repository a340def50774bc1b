"""Functions that compute the inputs of cost models from configurations and observations."""

from __future__ import annotations

import numpy as np
from chameleon_core.plugin_api import Configs, DesignSpace, Observations
from numpy.typing import NDArray

Features = NDArray[np.float32]
"""Features of configurations, shape (n, features); NaN is a missing value."""

THREADS = 1
"""The number of threads for fits and predictions.

There are only hundreds of rows, so that distributing work takes as long as the work itself. If
another process takes a core for a moment, several threads even take several times as long.
"""


def features_of(space: DesignSpace, configs: Configs) -> Features:
    """The features of configurations, with NaN for infinities, which tree libraries refuse.

    ``configs`` are configurations, shape (n, knobs).

    Returns:
        Features, shape (n, features).
    """
    features = space.features(configs)
    return np.where(np.isfinite(features), features, np.float32(np.nan))


def teaches(observations: Observations) -> bool:
    """Whether a model can learn from observations: at least two differ in throughput.

    Otherwise a fitted model would be a constant, and could not rank configurations.
    """
    quality = observations.relative_throughput
    return bool(len(quality)) and bool(np.ptp(quality) > 0.0)

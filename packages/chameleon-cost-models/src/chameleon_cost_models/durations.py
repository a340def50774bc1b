"""How long a configuration will take to build and run, learnt from those that were measured."""

from __future__ import annotations

from typing import Any

import numpy as np
from chameleon_core.stages import Observations, Scores

from chameleon_cost_models.bagging import tree_parameters
from chameleon_cost_models.inputs import THREADS, Features

_ROUNDS = 30

_LEAST_SPREAD = 1.1
"""Durations that differ by less than this factor, between the quartiles, are all the same."""


class Durations:
    """Predicts the wall-clock of a measurement, so that a search can prefer the cheap ones.

    A search pays for seconds, not for measurements, and some configurations take many times as
    long to build as others: those with large unrolled loops, above all.

    Args:
        features: shape (n, features).
        observations: the measurements, n of them; those that took no time are left out.
        seed: of the trees.
    """

    def __init__(self, features: Features, observations: Observations, *, seed: int) -> None:
        seconds = observations.build_seconds + observations.run_seconds
        timed = seconds > 0.0
        self._model: Any = None
        if np.count_nonzero(timed) < 2:  # noqa: PLR2004 - one has nothing to be compared with
            return
        doublings = np.log2(seconds[timed])
        low, self._typical, high = np.quantile(doublings, (0.25, 0.5, 0.75))
        if high - low < np.log2(_LEAST_SPREAD):
            return
        # Imported here: it takes a second, which the first batch need not wait for.
        import xgboost  # noqa: PLC0415

        labels = (doublings - self._typical).astype(np.float32)
        self._model = xgboost.train(
            {**tree_parameters(seed), "max_depth": 3, "eta": 0.3, "base_score": 0.0},
            xgboost.DMatrix(features[timed], label=labels, nthread=THREADS),
            num_boost_round=_ROUNDS,
        )

    def doublings(self, features: Features) -> Scores:
        """How often a typical measurement's seconds double to each one's, shape (n,).

        0 for a typical one (the median of those measured), 1 for one that takes twice as long,
        -1 for half; 0 throughout where measurements hardly differ.
        """
        if self._model is None:
            return np.zeros(len(features))
        predicted = self._model.inplace_predict(features, validate_features=False)
        return np.asarray(predicted, np.float64)

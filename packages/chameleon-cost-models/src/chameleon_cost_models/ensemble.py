"""Boosted trees several times over, whose disagreement says where little is known."""

from __future__ import annotations

from typing import Any

import numpy as np
from chameleon_core.space import Configs
from chameleon_core.stages import Scores, StageContext
from numpy.typing import NDArray

from chameleon_cost_models.acquisition import ACQUISITIONS
from chameleon_cost_models.inputs import THREADS, Features
from chameleon_cost_models.options import EnsembleOptions
from chameleon_cost_models.tree_model import TreeModel

Opinions = NDArray[np.float64]
"""One prediction per configuration and member, shape (n, members)."""

Gradient = NDArray[np.float32]

_LEAST_SCALE = 1e-6
"""Targets that spread less than this are not blown up: all is as the base model says."""


class Ensemble(TreeModel):
    """Bagged boosted trees: a prediction of relative throughput with an uncertainty.

    All members are the outputs of one xgboost model: member by member the same targets with
    other weights. So fitting is one call, and so is predicting, on features looked up once.
    The weights are drawn from an exponential distribution (the Bayesian bootstrap, Rubin 1981):
    smoother than drawing rows, which with few rows would lose some of them altogether.
    """

    def __init__(self, options: EnsembleOptions, context: StageContext) -> None:
        super().__init__(context, options.transfer)
        self._members = options.members
        self._rounds = options.rounds
        self._acquisition = ACQUISITIONS[options.acquisition]
        self._kappa = options.kappa
        # The same draw for every fit: a refit that learns nothing new changes nothing.
        self._seed = int(context.rng.integers(2**31))
        self._parameters: dict[str, Any] = {
            "max_depth": options.max_depth,
            "eta": options.learning_rate,
            "min_child_weight": options.min_child_weight,
            "lambda": options.l2,
            "colsample_bynode": options.feature_fraction,
            "nthread": THREADS,
            "tree_method": "hist",
            "verbosity": 0,
            "seed": self._seed,
            "base_score": 0.0,
        }
        self._booster: Any = None
        self._centre, self._scale, self._best = 0.0, 1.0, 0.0

    def grow(self, features: Features, quality: Scores, guess: Scores) -> None:
        # Imported here: it takes a second, which the first batch need not wait for.
        import xgboost  # noqa: PLC0415

        self._best = float(quality.max())
        # What the base model of other tasks, if any, gets wrong.
        missing = quality - guess
        self._centre, self._scale = float(missing.mean()), max(float(missing.std()), _LEAST_SCALE)
        shape = (len(quality), self._members)
        # Standardised, so that the regularisation means the same for every operator.
        targets = np.broadcast_to(((missing - self._centre) / self._scale)[:, None], shape)
        targets = targets.astype(np.float32)
        weights = np.random.default_rng(self._seed).exponential(size=shape).astype(np.float32)

        # Own objective: xgboost's takes one weight a row, not one a row and member.
        def squared_error(predicted: Gradient, _data: object) -> tuple[Gradient, Gradient]:
            gradient = np.multiply(predicted.reshape(shape) - targets, weights, dtype=np.float32)
            return gradient, weights

        data = xgboost.DMatrix(features, label=targets, nthread=THREADS)
        self._booster = xgboost.train(
            self._parameters, data, num_boost_round=self._rounds, obj=squared_error
        )

    def moments(self, configs: Configs) -> tuple[Scores, Scores]:
        """Mean and standard deviation of relative throughput over the members, each (n,)."""
        features, guess = self.seen(configs)
        return _moments(self._opinions(features, guess))

    def members(self, configs: Configs) -> Opinions:
        """Every member's prediction of relative throughput, shape (n, members)."""
        return self._opinions(*self.seen(configs))

    def evaluate(self, features: Features, guess: Scores) -> Scores:
        """The acquisition value, shape (n,), in units of relative throughput."""
        mean, std = _moments(self._opinions(features, guess))
        return self._acquisition(mean, std, self._best, self._kappa)

    def _opinions(self, features: Features, guess: Scores) -> Opinions:
        if not self._grown:
            return np.repeat(guess[:, None], self._members, axis=1)
        predicted = self._booster.inplace_predict(features, validate_features=False)
        opinions = np.asarray(predicted, np.float64).reshape(len(features), self._members)
        return guess[:, None] + self._centre + self._scale * opinions


def _moments(opinions: Opinions) -> tuple[Scores, Scores]:
    return opinions.mean(axis=1), opinions.std(axis=1, ddof=1)

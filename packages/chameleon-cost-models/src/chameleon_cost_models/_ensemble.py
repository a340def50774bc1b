"""A bagged ensemble of boosted trees, and the acquisition functions that use its uncertainty."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy
from chameleon_core.plugin_api import Configs, Scores, StageContext
from numpy.typing import NDArray

from chameleon_cost_models._inputs import THREADS, Features
from chameleon_cost_models._options import EnsembleOptions
from chameleon_cost_models._tree_model import TreeModel

Gradient = NDArray[np.float32]


def bagged_trees(
    features: Features,
    targets: NDArray[np.float64],
    *,
    seed: int,
    rounds: int,
    parameters: Mapping[str, Any],
) -> Any:
    """Fit several ensembles of boosted trees (members) as the outputs of one xgboost model.

    All members see the same rows with different exponential weights (the Bayesian bootstrap, Rubin
    1981). Drawing rows instead would lose some rows if there are few. ``features`` has shape (n,
    features), and ``targets`` shape (n, members).
    """
    # Imported here: it takes a second, which the first batch need not wait for.
    import xgboost  # noqa: PLC0415

    shape = targets.shape
    labels = targets.astype(np.float32)
    weights = np.random.default_rng(seed).exponential(size=shape).astype(np.float32)

    # xgboost's own objective takes one weight per row, not one per row and member.
    def squared_error(predicted: Gradient, _data: object) -> tuple[Gradient, Gradient]:
        gradient = np.multiply(predicted.reshape(shape) - labels, weights, dtype=np.float32)
        return gradient, weights

    return xgboost.train(
        {**tree_parameters(seed), **parameters, "base_score": 0.0},
        xgboost.DMatrix(features, label=labels, nthread=THREADS),
        num_boost_round=rounds,
        obj=squared_error,
    )


def tree_parameters(seed: int) -> dict[str, Any]:
    """Parameters of xgboost that all tree models of this package share."""
    return {"nthread": THREADS, "tree_method": "hist", "verbosity": 0, "seed": seed}


def member_predictions(booster: Any, features: Features) -> NDArray[np.float64]:
    """The prediction of every member for n configurations, shape (n, members)."""
    predicted = booster.inplace_predict(features, validate_features=False)
    return np.asarray(predicted, np.float64).reshape(len(features), -1)


MemberPredictions = NDArray[np.float64]
"""One prediction per configuration and member, shape (n, members)."""

_LEAST_SCALE = 1e-6
"""The least standard deviation by which targets are divided, so that noise is not scaled up."""


class Ensemble(TreeModel):
    """Predicts relative throughput with an uncertainty, by bagged boosted trees."""

    def __init__(self, options: EnsembleOptions, context: StageContext) -> None:
        super().__init__(context, options.transfer, options.prior)
        self._members = options.members
        self._rounds = options.rounds
        self._acquisition = ACQUISITIONS[options.acquisition]
        self._kappa = options.kappa
        # One seed for all fits, so that a refit to the same data gives the same model.
        self._seed = int(context.rng.integers(2**31))
        self._parameters: dict[str, Any] = {
            "max_depth": options.max_depth,
            "eta": options.learning_rate,
            "min_child_weight": options.min_child_weight,
            "lambda": options.l2,
            "colsample_bynode": options.feature_fraction,
        }
        self._booster: Any = None
        self._centre, self._scale, self._best = 0.0, 1.0, 0.0

    def grow(self, features: Features, quality: Scores, base: Scores) -> None:
        self._best = float(quality.max())
        residuals = quality - base
        self._centre, self._scale = (
            float(residuals.mean()),
            max(float(residuals.std()), _LEAST_SCALE),
        )
        # Standardised, so that the regularisation means the same for every operator.
        targets = ((residuals - self._centre) / self._scale)[:, None]
        self._booster = bagged_trees(
            features,
            np.broadcast_to(targets, (len(quality), self._members)),
            seed=self._seed,
            rounds=self._rounds,
            parameters=self._parameters,
        )

    def moments(self, configs: Configs) -> tuple[Scores, Scores]:
        """Mean and deviation of the members' predicted relative throughput, shape (n,) each."""
        features, base = self.inputs(configs)
        return _moments(self._member_predictions(features, base))

    def members(self, configs: Configs) -> MemberPredictions:
        """The relative throughput that each member predicts, shape (n, members)."""
        return self._member_predictions(*self.inputs(configs))

    def evaluate(self, features: Features, base: Scores) -> Scores:
        """The acquisition function's value of each configuration, shape (n,)."""
        mean, std = _moments(self._member_predictions(features, base))
        return self._acquisition(mean, std, self._best, self._kappa)

    def _member_predictions(self, features: Features, base: Scores) -> MemberPredictions:
        if not self._fitted:
            return np.repeat(base[:, None], self._members, axis=1)
        return (
            base[:, None] + self._centre + self._scale * member_predictions(self._booster, features)
        )


def _moments(predictions: MemberPredictions) -> tuple[Scores, Scores]:
    return predictions.mean(axis=1), predictions.std(axis=1, ddof=1)


Numbers = NDArray[np.float64]

Acquisition = Callable[[Numbers, Numbers, float, float], Numbers]
"""Computes values from means, standard deviations, the best observed target, and kappa.

The first two arguments and the result have shape (n,). Higher values are better.
"""

_LEAST_STD = 1e-9
"""Smaller standard deviations are replaced by this one, to avoid a division by 0."""


def predicted_mean(mean: Numbers, _std: Numbers, _best: float, _kappa: float) -> Numbers:
    """The mean alone, which ignores the uncertainty."""
    return mean


def upper_bound(mean: Numbers, std: Numbers, _best: float, kappa: float) -> Numbers:
    """Upper confidence bound, ``mean + kappa * std`` (Srinivas et al. 2010, algorithm 1)."""
    return mean + kappa * std


def expected_improvement(mean: Numbers, std: Numbers, best: float, _kappa: float) -> Numbers:
    """Expected improvement over the best observed target (Jones et al. 1998, equation 15)."""
    std = np.maximum(std, _LEAST_STD)
    gain = (mean - best) / std
    density = np.exp(-0.5 * gain**2) / np.sqrt(2.0 * np.pi)
    improvement: Numbers = np.maximum(std * (gain * scipy.special.ndtr(gain) + density), 0.0)
    return improvement


ACQUISITIONS: Mapping[str, Acquisition] = {
    "mean": predicted_mean,
    "ucb": upper_bound,
    "ei": expected_improvement,
}

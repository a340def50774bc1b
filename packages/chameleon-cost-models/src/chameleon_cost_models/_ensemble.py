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

    Drawing rows instead would lose some rows if there are few.

    ``features`` are the features of the measured configurations, shape (n, features). ``targets`` has the standardised targets of each member, shape (n, members).
    """
    # Imported here: it takes a second, which the first batch need not wait for.
    import xgboost  # noqa: PLC0415

    shape = targets.shape
    wanted = targets.astype(np.float32)
    weights = np.random.default_rng(seed).exponential(size=shape).astype(np.float32)

    # Own objective: xgboost's takes one weight a row, not one a row and member.
    def squared_error(predicted: Gradient, _data: object) -> tuple[Gradient, Gradient]:
        gradient = np.multiply(predicted.reshape(shape) - wanted, weights, dtype=np.float32)
        return gradient, weights

    return xgboost.train(
        {**tree_parameters(seed), **parameters, "base_score": 0.0},
        xgboost.DMatrix(features, label=wanted, nthread=THREADS),
        num_boost_round=rounds,
        obj=squared_error,
    )


def tree_parameters(seed: int) -> dict[str, Any]:
    """The xgboost parameters that all tree models of this package share."""
    return {"nthread": THREADS, "tree_method": "hist", "verbosity": 0, "seed": seed}


def opinions(booster: Any, features: Features) -> NDArray[np.float64]:
    """The prediction of every member (ensemble of trees) for each configuration.

    ``features`` are the features of n configurations, shape (n, features).

    Returns:
        An array of shape (n, members).
    """
    predicted = booster.inplace_predict(features, validate_features=False)
    return np.asarray(predicted, np.float64).reshape(len(features), -1)


Opinions = NDArray[np.float64]
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
        # The same draw for every fit: a refit that learns nothing new changes nothing.
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

    def grow(self, features: Features, quality: Scores, guess: Scores) -> None:
        self._best = float(quality.max())
        # What the base model of other tasks, if any, gets wrong.
        missing = quality - guess
        self._centre, self._scale = float(missing.mean()), max(float(missing.std()), _LEAST_SCALE)
        # Standardised, so that the regularisation means the same for every operator.
        wanted = ((missing - self._centre) / self._scale)[:, None]
        self._booster = bagged_trees(
            features,
            np.broadcast_to(wanted, (len(quality), self._members)),
            seed=self._seed,
            rounds=self._rounds,
            parameters=self._parameters,
        )

    def moments(self, configs: Configs) -> tuple[Scores, Scores]:
        """Mean and standard deviation of the members' predicted relative throughput.

        Args:
            configs: Configurations, shape (n, knobs).

        Returns:
            Two arrays of shape (n,), one number per configuration.
        """
        features, guess = self.seen(configs)
        return _moments(self._opinions(features, guess))

    def members(self, configs: Configs) -> Opinions:
        """The relative throughput that each member predicts, shape (n, members)."""
        return self._opinions(*self.seen(configs))

    def evaluate(self, features: Features, guess: Scores) -> Scores:
        """The value of measuring each configuration, by the acquisition function, shape (n,).

        Args:
            features: The features of n configurations, shape (n, features).
            guess: The relative throughput that other tasks and the prior model predict, shape (n,).
                It is 0 if there is neither.
        """
        mean, std = _moments(self._opinions(features, guess))
        return self._acquisition(mean, std, self._best, self._kappa)

    def _opinions(self, features: Features, guess: Scores) -> Opinions:
        if not self._grown:
            return np.repeat(guess[:, None], self._members, axis=1)
        return guess[:, None] + self._centre + self._scale * opinions(self._booster, features)


def _moments(votes: Opinions) -> tuple[Scores, Scores]:
    return votes.mean(axis=1), votes.std(axis=1, ddof=1)


Numbers = NDArray[np.float64]

Acquisition = Callable[[Numbers, Numbers, float, float], Numbers]
"""Computes values from means, standard deviations, the best observed target, and kappa.

The first two arguments and the result have shape (n,). Higher values are better.
"""

_LEAST_STD = 1e-9
"""Smaller standard deviations are replaced by this one, to avoid a division by 0."""


def mean_alone(mean: Numbers, _std: Numbers, _best: float, _kappa: float) -> Numbers:
    """The mean alone, which ignores the uncertainty."""
    return mean


def upper_bound(mean: Numbers, std: Numbers, _best: float, kappa: float) -> Numbers:
    """Upper confidence bound, ``mean + kappa * std`` (Srinivas et al. 2010, algorithm 1).

    ``mean`` is the predicted mean of n configurations, shape (n,). ``std`` has the predicted standard deviations, shape (n,).
    """
    return mean + kappa * std


def expected_improvement(mean: Numbers, std: Numbers, best: float, _kappa: float) -> Numbers:
    """Expected improvement over the best observed target (Jones et al. 1998, equation 15).

    ``mean`` is the predicted mean of n configurations, shape (n,). ``std`` has the predicted standard deviations, shape (n,).
    """
    std = np.maximum(std, _LEAST_STD)
    gain = (mean - best) / std
    density = np.exp(-0.5 * gain**2) / np.sqrt(2.0 * np.pi)
    improvement: Numbers = np.maximum(std * (gain * scipy.special.ndtr(gain) + density), 0.0)
    return improvement


ACQUISITIONS: Mapping[str, Acquisition] = {
    "mean": mean_alone,
    "ucb": upper_bound,
    "ei": expected_improvement,
}

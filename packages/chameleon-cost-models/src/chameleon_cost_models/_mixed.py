"""Bagged trees that learn throughput and its logarithm, and a classifier of failures."""

from __future__ import annotations

from typing import Any

import numpy as np
from chameleon_core.plugin_api import Configs, CostModel, Observations, Scores, StageContext
from numpy.typing import NDArray

from chameleon_cost_models._ensemble import bagged_trees, member_predictions, tree_parameters
from chameleon_cost_models._inputs import THREADS, Features, features_of, has_signal
from chameleon_cost_models._options import MixedOptions
from chameleon_cost_models._prior_mean import PriorMean

_LEAST_VALID = 3
"""The fewest timed configurations from which the ensemble is fitted."""

_LEAST_SCALE = 1e-9
"""The least standard deviation by which targets are divided, so that noise is not scaled up."""

_FAILURE_SCORE = -3.0
"""The score of a configuration that is certain to fail, in standard deviations of the targets."""

_VALIDITY_ROUNDS = 30


class MixedEnsemble(CostModel):
    """Bagged boosted trees: half of the members learn throughput, half its logarithm.

    The score is an upper confidence bound, ``mean + kappa * std`` (Srinivas et al. 2010, equation
    6). A classifier of failures lowers it, and with the option ``price`` the predicted duration
    does too.
    """

    def __init__(self, options: MixedOptions, context: StageContext) -> None:
        self._options = options
        self._space = context.space
        # One seed for all fits, so that a refit to the same data gives the same model.
        self._seed = int(context.rng.integers(2**31))
        self._members: Any = None
        self._validity: Any = None
        self._durations: DurationModel | None = None
        self._priors = tuple(
            PriorMean(options.prior, context, logarithm=logarithm) for logarithm in (False, True)
        )

    @property
    def trained(self) -> bool:
        return self._members is not None or self._priors[1].available

    def fit(self, observations: Observations) -> None:
        quality = observations.relative_throughput
        valid = quality > 0.0
        self._members = self._validity = self._durations = None
        if not has_signal(observations) or np.count_nonzero(valid) < _LEAST_VALID:
            return
        features = features_of(self._space, observations.configs)
        self._members = self._fit_members(
            features[valid], quality[valid], observations.configs[valid]
        )
        if not valid.all():
            self._validity = self._classifier(features, valid)
        if self._options.price:
            self._durations = DurationModel(features, observations, seed=self._seed)

    def predict(self, configs: Configs) -> Scores:
        """The upper confidence bound in standard deviations of the targets, shape (n,)."""
        if not len(configs):
            return np.zeros(0)
        if self._members is None:
            return self._priors[1].raw(configs)
        features = features_of(self._space, configs)
        predictions = member_predictions(self._members, features)
        for scale, prior in enumerate(self._priors):
            if prior.available:
                predictions[:, scale::2] += prior.mean(prior.raw(configs))[:, None]
        # Variance within each scale alone: a difference between scales is no uncertainty.
        variance: Scores = 0.5 * (
            predictions[:, ::2].var(axis=1, ddof=1) + predictions[:, 1::2].var(axis=1, ddof=1)
        )
        scores: Scores = predictions.mean(axis=1) + self._options.kappa * np.sqrt(variance)
        if self._durations is not None:
            scores -= self._options.price * self._durations.log2_durations(features)
        if self._validity is not None:
            chance = self._validity.inplace_predict(features, validate_features=False)
            scores = _FAILURE_SCORE + (scores - _FAILURE_SCORE) * np.asarray(chance, np.float64)
        return scores

    def _parameters(self) -> dict[str, Any]:
        return {"max_depth": self._options.max_depth, "eta": self._options.learning_rate}

    def _fit_members(self, features: Features, quality: Scores, configs: Configs) -> Any:
        scales = [_standardised(quality), _standardised(np.log(quality))]
        for scale, prior in enumerate(self._priors):
            if prior.available:
                raw = prior.raw(configs)
                prior.fit(raw, scales[scale])
                scales[scale] = scales[scale] - prior.mean(raw)
        return bagged_trees(
            features,
            np.stack([scales[member % 2] for member in range(self._options.members)], axis=1),
            seed=self._seed,
            rounds=self._options.rounds,
            parameters={**self._parameters(), "min_child_weight": 0.0},
        )

    def _classifier(self, features: Features, valid: NDArray[np.bool_]) -> Any:
        import xgboost  # noqa: PLC0415

        data = xgboost.DMatrix(features, label=valid.astype(np.float32), nthread=THREADS)
        return xgboost.train(
            {**tree_parameters(self._seed), **self._parameters(), "objective": "binary:logistic"},
            data,
            num_boost_round=_VALIDITY_ROUNDS,
        )


def _standardised(values: Scores) -> Scores:
    scaled: Scores = (values - values.mean()) / max(float(values.std()), _LEAST_SCALE)
    return scaled


_ROUNDS = 30

_LEAST_SPREAD = 1.1
"""The least ratio of the durations' quartiles; with less, all durations count as equal."""


class DurationModel:
    """Predicts how long a measurement takes, so that a search can prefer quick measurements."""

    def __init__(self, features: Features, observations: Observations, *, seed: int) -> None:
        seconds = observations.build_seconds + observations.run_seconds
        timed = seconds > 0.0
        self._model: Any = None
        if np.count_nonzero(timed) < 2:  # noqa: PLR2004 - a comparison needs two
            return
        log2_durations = np.log2(seconds[timed])
        low, self._typical, high = np.quantile(log2_durations, (0.25, 0.5, 0.75))
        if high - low < np.log2(_LEAST_SPREAD):
            return
        # Imported here: it takes a second, which the first batch need not wait for.
        import xgboost  # noqa: PLC0415

        labels = (log2_durations - self._typical).astype(np.float32)
        self._model = xgboost.train(
            {**tree_parameters(seed), "max_depth": 3, "eta": 0.3, "base_score": 0.0},
            xgboost.DMatrix(features[timed], label=labels, nthread=THREADS),
            num_boost_round=_ROUNDS,
        )

    def log2_durations(self, features: Features) -> Scores:
        """The predicted duration over the median duration, as a logarithm of base 2, shape (n,)."""
        if self._model is None:
            return np.zeros(len(features))
        predicted = self._model.inplace_predict(features, validate_features=False)
        return np.asarray(predicted, np.float64)

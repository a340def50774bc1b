"""Bagged trees that learn throughput and its logarithm, and a classifier of failures."""

from __future__ import annotations

from typing import Any

import numpy as np
from chameleon_core.plugin_api import Configs, CostModel, Observations, Scores, StageContext
from numpy.typing import NDArray

from chameleon_cost_models._ensemble import bagged_trees, opinions, tree_parameters
from chameleon_cost_models._inputs import THREADS, Features, features_of, teaches
from chameleon_cost_models._options import MixedOptions
from chameleon_cost_models._prior_mean import PriorMean

_LEAST_VALID = 3
"""The fewest timed configurations from which the ensemble is fitted."""

_LEAST_SCALE = 1e-9
"""The least standard deviation by which targets are divided, so that noise is not scaled up."""

_HOPELESS = -3.0
"""The score of a configuration that is certain to fail, in standard deviations of the targets."""

_VALIDITY_ROUNDS = 30


class MixedEnsemble(CostModel):
    """Bagged boosted trees: half of the trees learn throughput, half its logarithm.

    The score is an upper confidence bound, ``mean + kappa * std`` (Srinivas et al. 2010, equation
    6), over the standardised predictions of all members (ensembles of trees).
    """

    def __init__(self, options: MixedOptions, context: StageContext) -> None:
        self._options = options
        self._space = context.space
        # The same draw for every fit: a refit that learns nothing new changes nothing.
        self._seed = int(context.rng.integers(2**31))
        self._members: Any = None
        self._validity: Any = None
        self._durations: Durations | None = None
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
        if not teaches(observations) or np.count_nonzero(valid) < _LEAST_VALID:
            return
        features = features_of(self._space, observations.configs)
        self._members = self._grown(features[valid], quality[valid], observations.configs[valid])
        if not valid.all():
            self._validity = self._classifier(features, valid)
        if self._options.price:
            self._durations = Durations(features, observations, seed=self._seed)

    def predict(self, configs: Configs) -> Scores:
        """The score of each configuration: an upper confidence bound, shape (n,)."""
        if not len(configs):
            return np.zeros(0)
        if self._members is None:
            return self._priors[1].raw(configs)
        features = features_of(self._space, configs)
        votes = opinions(self._members, features)
        for scale, prior in enumerate(self._priors):
            if prior.available:
                votes[:, scale::2] += prior.mean(prior.raw(configs))[:, None]
        # Members disagree about a scale; that the scales differ is no uncertainty.
        variance: Scores = 0.5 * (
            votes[:, ::2].var(axis=1, ddof=1) + votes[:, 1::2].var(axis=1, ddof=1)
        )
        scores: Scores = votes.mean(axis=1) + self._options.kappa * np.sqrt(variance)
        if self._durations is not None:
            scores -= self._options.price * self._durations.doublings(features)
        if self._validity is not None:
            chance = self._validity.inplace_predict(features, validate_features=False)
            scores = _HOPELESS + (scores - _HOPELESS) * np.asarray(chance, np.float64)
        return scores

    def _parameters(self) -> dict[str, Any]:
        return {"max_depth": self._options.max_depth, "eta": self._options.learning_rate}

    def _grown(self, features: Features, quality: Scores, configs: Configs) -> Any:
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


class Durations:
    """Predicts how long a measurement takes, so that a search can prefer quick measurements.

    Args:
        features: The features of the measured configurations, shape (n, features).
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
        """The predicted duration of measuring each configuration, as a logarithm, shape (n,)."""
        if self._model is None:
            return np.zeros(len(features))
        predicted = self._model.inplace_predict(features, validate_features=False)
        return np.asarray(predicted, np.float64)

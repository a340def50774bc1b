"""An ensemble that looks at throughput on two scales, and at validity on its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from chameleon_core.space import Configs
from chameleon_core.stages import CostModel, Observations, Scores, StageContext
from numpy.typing import NDArray

from chameleon_cost_models.bagging import bagged_trees, opinions, tree_parameters
from chameleon_cost_models.durations import Durations
from chameleon_cost_models.inputs import THREADS, Features, features_of, teaches
from chameleon_cost_models.mixed_options import MixedOptions
from chameleon_cost_models.prior_mean import PriorMean

_LEAST_VALID = 3
"""Timed configurations below which a spread over members means nothing."""

_LEAST_SCALE = 1e-9
"""Targets whose standard deviation is less than this are not scaled up."""

_HOPELESS = -3.0
"""Score of a configuration that will certainly fail, in standard deviations of what was timed."""

_VALIDITY_ROUNDS = 30


class MixedEnsemble(CostModel):
    """Bagged boosted trees, half on relative throughput and half on its logarithm.

    Throughput tells the best configurations apart and hardly sees the others, which all are near
    0 where the best is many times as fast; the logarithm orders those and hardly sees the best.
    The score is an upper confidence bound, ``mean + kappa * std`` (Srinivas et al. 2010,
    equation 6), over the members, each scale standardised. Failures have no throughput: a
    classifier learns which configurations fail, and its probability pulls a score towards
    that of a hopeless one. With a ``price``, what is expected to take long loses by it.
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
        """Upper confidence bounds in standard deviations of what was timed, shape (n,)."""
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
        return {
            "max_depth": self._options.max_depth,
            "eta": self._options.learning_rate,
        }

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

"""What all tree models share: features, transfer, and when there is nothing to learn."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from chameleon_core.space import Configs
from chameleon_core.stages import CostModel, Observations, Scores, StageContext

from chameleon_cost_models.inputs import Features, features_of, teaches
from chameleon_cost_models.options import TransferOptions
from chameleon_cost_models.prior_mean import PriorMean
from chameleon_cost_models.prior_options import Prior as PriorOption
from chameleon_cost_models.transfer import Prior


class TreeModel(CostModel):
    """Trees from a space's features to relative throughput, fitted afresh after every batch.

    The target is best cost over cost, and 0 for every failure, so that 1 is the best known
    configuration whatever the operator (AutoTVM, Chen et al. 2018, section 3.2).

    Args:
        context: the task's.
        transfer: what to learn from other tasks and earlier runs.
        prior: at most one model that was trained beforehand.
    """

    def __init__(
        self, context: StageContext, transfer: TransferOptions, prior: PriorOption = ()
    ) -> None:
        self._space = context.space
        self._prior = Prior(transfer, context)
        self._mean = PriorMean(prior, context, logarithm=False)
        self._own = 0
        self._grown = False

    @abstractmethod
    def grow(self, features: Features, quality: Scores, guess: Scores) -> None:
        """Fit the trees.

        Args:
            features: shape (n, features).
            quality: relative throughput of the same rows, not all alike; shape (n,).
            guess: what other tasks let expect, 0 without transfer; shape (n,).
        """

    @abstractmethod
    def evaluate(self, features: Features, guess: Scores) -> Scores:
        """Scores of configurations by the trees last grown, shape (n,).

        Args:
            features: shape (n, features), n at least 1.
            guess: as for ``grow``.
        """

    @property
    def trained(self) -> bool:
        if not self._grown:
            self._prior.refresh()
        return self._grown or self._prior.available or self._mean.available

    def fit(self, observations: Observations) -> None:
        """Fit to everything measured so far.

        Stays untrained until two observations differ, unless other tasks taught something.
        """
        self._own = len(observations)
        self._prior.refresh(self._own)
        self._grown = teaches(observations)
        if self._grown:
            quality = observations.relative_throughput
            features = features_of(self._space, observations.configs)
            guess = self._prior.guess(features, self._own)
            if self._mean.available:
                raw = self._mean.raw(observations.configs)
                self._mean.fit(raw, quality - guess)
                guess = guess + self._mean.mean(raw)
            self.grow(features, quality, guess)

    def predict(self, configs: Configs) -> Scores:
        """Scores, higher is better, shape (n,)."""
        if not len(configs):
            return np.zeros(0)
        features, guess = self.seen(configs)
        # Before the first own measurements there is only what other tasks let expect.
        return self.evaluate(features, guess) if self._grown else guess

    def seen(self, configs: Configs) -> tuple[Features, Scores]:
        """Features of configurations, and what other tasks let expect of them."""
        features = features_of(self._space, configs)
        guess = self._prior.guess(features, self._own)
        if self._mean.available:
            guess = guess + self._mean.mean(self._mean.raw(configs))
        return features, guess

    @property
    def expects(self) -> bool:
        """Whether ``grow`` and ``evaluate`` are given more than zeros as a guess."""
        return self._prior.available or self._mean.available

"""A prior mean: predictions of a model trained before the run, scaled to the measurements.

A cost model with a prior learns only the prior's errors. A slope is fitted, so that a prior that is
wrong about a task soon has no influence.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from chameleon_core.plugin_api import (
    Configs,
    CostModel,
    Scores,
    StageContext,
    StageSpec,
    create_stage,
)

_PRIOR_WEIGHT = 4.0
"""The number of measurements that the prior's own scale is worth."""


class PriorMean:
    """The predictions of a cost model that was trained before the run, scaled to measurements."""

    def __init__(
        self, priors: Sequence[StageSpec | str], context: StageContext, *, logarithm: bool
    ) -> None:
        self._logarithm = logarithm
        self._model: CostModel | None = None
        self._slope, self._offset = 1.0, 0.0
        if priors:
            (rng,) = context.rng.spawn(1)
            model = create_stage("cost_models", priors[0], attrs.evolve(context, rng=rng))
            self._model = model if model.trained else None

    @property
    def available(self) -> bool:
        """Whether there is a trained model whose predictions are used."""
        return self._model is not None

    def raw(self, configs: Configs) -> Scores:
        """The trained model's prediction of relative throughput, or its logarithm, shape (n,)."""
        if self._model is None or not len(configs):
            return np.zeros(len(configs))
        predicted = self._model.predict(configs)
        if not self._logarithm:
            return predicted
        logs: Scores = np.log(np.maximum(predicted, np.finfo(np.float64).tiny))
        return logs

    def fit(self, raw: Scores, targets: Scores) -> None:
        """Fit slope and offset from predictions ``raw`` to targets, shape (n,) each.

        It is a ridge regression, whose penalty pulls the slope towards the ratio of standard
        deviations.
        """
        spread = float(raw.std())
        ratio = float(targets.std()) / spread if spread > 0.0 else 0.0
        varying = raw - raw.mean()
        product, square = float(varying @ targets), float(varying @ varying)
        penalty = _PRIOR_WEIGHT * spread**2
        slope = (product + penalty * ratio) / (square + penalty) if square + penalty > 0.0 else 0.0
        # A prior with a negative correlation is not used.
        self._slope = max(0.0, slope)
        self._offset = float(targets.mean()) - self._slope * float(raw.mean())

    def mean(self, raw: Scores) -> Scores:
        """Predictions ``raw``, scaled to the targets of ``fit``, shape (n,)."""
        return self._offset + self._slope * raw

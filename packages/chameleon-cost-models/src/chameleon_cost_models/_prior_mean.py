"""A prior mean: predictions of a model trained before the run, scaled to the measurements.

A cost model with a prior learns only the prior's errors. A fitted slope says how much the prior
counts. So a prior that is wrong about a task soon has no influence.
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
    create_member,
)

_TRUST = 4.0
"""The number of measurements that the prior's own scale counts as."""


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
            model = create_member("cost_models", priors[0], attrs.evolve(context, rng=rng))
            self._model = model if model.trained else None

    @property
    def available(self) -> bool:
        """Whether there is a trained model whose predictions are used."""
        return self._model is not None

    def raw(self, configs: Configs) -> Scores:
        """The trained model's prediction for each configuration, shape (n,).

        Args:
            configs: Configurations, shape (n, knobs).
        """
        if self._model is None or not len(configs):
            return np.zeros(len(configs))
        predicted = self._model.predict(configs)
        if not self._logarithm:
            return predicted
        logs: Scores = np.log(np.maximum(predicted, np.finfo(np.float64).tiny))
        return logs

    def fit(self, raw: Scores, wanted: Scores) -> None:
        """Fit a slope and an offset that scale predictions to measurements.

        Args:
            raw: The predictions for the measured configurations, shape (n,).
            wanted: The targets of these configurations, shape (n,).
        """
        spread = float(raw.std())
        own = float(wanted.std()) / spread if spread > 0.0 else 0.0
        varying = raw - raw.mean()
        product, square = float(varying @ wanted), float(varying @ varying)
        trust = _TRUST * spread**2
        slope = (product + trust * own) / (square + trust) if square + trust > 0.0 else 0.0
        # A prior whose order is the wrong way round is no prior.
        self._slope = max(0.0, slope)
        self._offset = float(wanted.mean()) - self._slope * float(raw.mean())

    def mean(self, raw: Scores) -> Scores:
        """Predictions of the trained model, scaled to the measurements of this task, shape (n,).

        Args:
            raw: Predictions that ``raw`` returned, shape (n,).
        """
        return self._offset + self._slope * raw

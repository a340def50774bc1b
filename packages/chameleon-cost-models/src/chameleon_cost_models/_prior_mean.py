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
    """The predictions of a cost model that was trained before the run, scaled to measurements.

    The trained model predicts relative throughput. The model is not used if it reports that it is
    untrained. A predictor reports this for tasks unlike those of its training.

    Args:
        priors: The cost models' option ``prior``, with no model or one.
        context: The task's context. The trained model gets a random generator of its own.
        logarithm: Whether the targets are logarithms of throughput.
    """

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

        A prediction is the relative throughput: the task's lowest time divided by the
        configuration's time. If the class was made with ``logarithm=True``, it is the logarithm of
        relative throughput. All predictions are 0 if there is no trained model.

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

        Ridge regression pulls the slope towards the ratio of the standard deviations of ``wanted``
        and ``raw``. This pull counts as much as ``_TRUST`` measurements.

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

        The unit is that of the targets of ``fit``.

        Args:
            raw: Predictions that ``raw`` returned, shape (n,).
        """
        return self._offset + self._slope * raw

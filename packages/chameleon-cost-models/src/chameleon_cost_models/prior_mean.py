"""A prior mean: what a model that was trained beforehand expects, scaled to what is measured.

A cost model with a prior learns what the prior gets wrong. How much the prior counts is fitted to
the measurements, so that one that is wrong about a task does no harm for long.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from chameleon_core.pipeline.members import create_member
from chameleon_core.pipeline.schema import StageSpec
from chameleon_core.space import Configs
from chameleon_core.stages import CostModel, Scores, StageContext

_TRUST = 4.0
"""Measurements that the prior's own scale counts as much as."""


class PriorMean:
    """The expectation of a model trained beforehand, if there is one and it knows.

    Such a model predicts relative throughput. One that is not trained before the first measurement
    (a predictor says so of tasks unlike those it knows) is not asked.

    Args:
        priors: options' ``prior``: none or one.
        context: the task's; the prior draws from a generator of its own.
        logarithm: whether it is the logarithm of throughput that is expected.
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
        """Whether something is known before the first measurement."""
        return self._model is not None

    def raw(self, configs: Configs) -> Scores:
        """The scores of the model, as throughput or its logarithm, shape (n,); 0 without one."""
        if self._model is None or not len(configs):
            return np.zeros(len(configs))
        predicted = self._model.predict(configs)
        if not self._logarithm:
            return predicted
        logs: Scores = np.log(np.maximum(predicted, np.finfo(np.float64).tiny))
        return logs

    def fit(self, raw: Scores, wanted: Scores) -> None:
        """Fit slope and offset to measurements.

        Ridge regression towards a slope of one standard deviation of what is wanted for one of what
        is predicted, which counts as ``_TRUST`` measurements do.

        Args:
            raw: predictions of the measured configurations, shape (n,).
            wanted: their targets, shape (n,).
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
        """The expectation, in units of what was fitted, shape (n,)."""
        return self._offset + self._slope * raw


__all__ = ["PriorMean"]

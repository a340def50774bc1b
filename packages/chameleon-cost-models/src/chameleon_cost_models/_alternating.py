"""A cost model in which several models take turns, since each errs about some spaces."""

from __future__ import annotations

import attrs
import numpy as np
from chameleon_core.plugin_api import (
    Configs,
    CostModel,
    Observations,
    Scores,
    StageContext,
    create_stage,
)
from numpy.typing import NDArray

from chameleon_cost_models._options import AlternatingOptions


class AlternatingModels(CostModel):
    """Lets several cost models take turns: each round uses the next model.

    A search with one model stays near configurations about which this model is confidently wrong.
    The number of measurements alone decides which model is next.
    """

    def __init__(self, options: AlternatingOptions, context: StageContext) -> None:
        generators = context.rng.spawn(len(options.models))
        self._models: list[CostModel] = [
            create_stage("cost_models", member, attrs.evolve(context, rng=rng))
            for member, rng in zip(options.models, generators, strict=True)
        ]
        self._batch = max(context.batch_size, 1)
        self._current = self._models[0]

    @property
    def trained(self) -> bool:
        return self._current.trained

    def fit(self, observations: Observations) -> None:
        """Fit the next model that can learn from the observations."""
        first = -(-len(observations) // self._batch) % len(self._models)
        for model in self._models[first:] + self._models[:first]:
            self._current = model
            model.fit(observations)
            if model.trained:
                return

    def predict(self, configs: Configs) -> Scores:
        return self._current.predict(configs)

    def select_batch(self, configs: Configs, count: int) -> NDArray[np.intp] | None:
        return self._current.select_batch(configs, count)

"""Several models of different kinds take turns, since each kind is wrong about some spaces."""

from __future__ import annotations

import attrs
import numpy as np
from chameleon_core.pipeline.members import create_member
from chameleon_core.space import Configs
from chameleon_core.stages import CostModel, Observations, Scores, StageContext
from numpy.typing import NDArray

from chameleon_cost_models.options import AlternatingOptions


class AlternatingModels(CostModel):
    """One model guides a round, another the next.

    A search guided by one model alone stays where that model is sure and wrong; the measurements of
    the other model's rounds correct it. Only the model whose turn it is learns, so that a round
    takes no more time than one of them. The number of measurements decides whose turn it is: a fit
    depends on nothing else.

    Args:
        options: names the models.
        context: the task's; each model draws from a generator of its own.
    """

    def __init__(self, options: AlternatingOptions, context: StageContext) -> None:
        generators = context.rng.spawn(len(options.models))
        self._models: list[CostModel] = [
            create_member("cost_models", member, attrs.evolve(context, rng=rng))
            for member, rng in zip(options.models, generators, strict=True)
        ]
        self._batch = max(context.batch_size, 1)
        self._turn = self._models[0]

    @property
    def trained(self) -> bool:
        return self._turn.trained

    def fit(self, observations: Observations) -> None:
        """Have the next model learn, or the one after it if that one learns nothing."""
        first = -(-len(observations) // self._batch) % len(self._models)
        for model in self._models[first:] + self._models[:first]:
            self._turn = model
            model.fit(observations)
            if model.trained:
                return

    def predict(self, configs: Configs) -> Scores:
        """Scores of the model whose turn it is, in its units, shape (n,)."""
        return self._turn.predict(configs)

    def select_batch(self, configs: Configs, count: int) -> NDArray[np.intp] | None:
        """The rows that the model whose turn it is would measure at the same time."""
        return self._turn.select_batch(configs, count)

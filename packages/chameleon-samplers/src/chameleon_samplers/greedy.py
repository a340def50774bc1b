"""AutoTVM's sampler: the candidates with the best scores, and a few random configurations."""

from __future__ import annotations

import numpy as np
from chameleon_core.space import Configs
from chameleon_core.stages import Candidates, Sampler, StageContext, Visited

from chameleon_samplers.filling import fill
from chameleon_samplers.options import GreedyOptions


class GreedySampler(Sampler):
    """Selects the candidates with the best scores, and a few random configurations.

    The share ``epsilon`` of every batch is drawn at random from the whole space. The cost model
    thus learns from regions where nothing was measured yet.
    """

    def __init__(self, options: GreedyOptions, context: StageContext) -> None:
        self._epsilon = options.epsilon
        self._space = context.space
        self._rng = context.rng

    def select(self, candidates: Candidates, visited: Visited, count: int) -> Configs:
        random_picks = self._random_picks(count)
        order = np.argsort(-candidates.scores, kind="stable")
        plan = self._space.distinct(candidates.configs[order])
        plan = plan[visited.fresh(plan)]
        return fill(
            self._space,
            plan[: count - random_picks],
            plan,
            visited=visited,
            count=count,
            rng=self._rng,
        )

    def _random_picks(self, count: int) -> int:
        """Epsilon times ``count``, rounded at random, so that small batches explore too."""
        return min(count, int(self._epsilon * count + self._rng.random()))

"""Random search: the explorer every other one has to beat."""

from __future__ import annotations

import numpy as np
from chameleon_core.stages import Candidates, Explorer, ScoreFunction, StageContext, Visited

from chameleon_explorers.options import RandomOptions
from chameleon_explorers.starting import unguided


class RandomExplorer(Explorer):
    """Proposes random unvisited configurations, ranked by the cost model where there is one."""

    def __init__(self, options: RandomOptions, context: StageContext) -> None:
        self._options = options
        self._space = context.space
        self._rng = context.rng

    def explore(self, score: ScoreFunction | None, visited: Visited, count: int) -> Candidates:
        found = unguided(
            self._space, visited, count, self._rng, use_start=self._options.use_start
        )
        if score is None:
            return found
        scores = score(found.configs)
        order = np.argsort(-scores, kind="stable")
        return Candidates(configs=found.configs[order], scores=scores[order], steps=1)

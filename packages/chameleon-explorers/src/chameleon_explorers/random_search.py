"""Random search, with which all other explorers are compared."""

from __future__ import annotations

import numpy as np
from chameleon_core.plugins import NoOptions
from chameleon_core.stages import Candidates, Explorer, ScoreFunction, StageContext, Visited


class RandomExplorer(Explorer):
    """Proposes random unmeasured configurations, ranked by the cost model if it is trained."""

    def __init__(self, options: NoOptions, context: StageContext) -> None:  # noqa: ARG002
        self._rng = context.rng

    def explore(self, score: ScoreFunction | None, visited: Visited, count: int) -> Candidates:
        configs = visited.sample(count, self._rng)
        if score is None:
            return Candidates(configs=configs, scores=np.zeros(len(configs)))
        scores = score(configs)
        order = np.argsort(-scores, kind="stable")
        return Candidates(configs=configs[order], scores=scores[order], steps=1)

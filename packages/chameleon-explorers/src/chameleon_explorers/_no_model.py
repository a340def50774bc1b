"""Search without a model: the cost model ``none``, and an explorer of random configurations."""

from __future__ import annotations

import numpy as np
from chameleon_core.plugin_api import (
    Candidates,
    Configs,
    CostModel,
    Explorer,
    NoOptions,
    Observations,
    Scores,
    StageContext,
    Visited,
)


class NoCostModel(CostModel):
    """A cost model that is never trained and predicts nothing."""

    def __init__(self, options: NoOptions, context: StageContext) -> None:
        pass

    def fit(self, observations: Observations) -> None:
        """Learn nothing."""

    @property
    def trained(self) -> bool:
        return False

    def predict(self, configs: Configs) -> Scores:
        raise RuntimeError(f"no model to score {len(configs)} configurations with")


class RandomExplorer(Explorer):
    """Proposes random unvisited configurations, ranked by the cost model if it is trained."""

    def __init__(self, options: NoOptions, context: StageContext) -> None:  # noqa: ARG002
        self._rng = context.rng

    def explore(
        self, score: Explorer.ScoreFunction | None, visited: Visited, count: int
    ) -> Candidates:
        configs = visited.sample(count, self._rng)
        if score is None:
            return Candidates(configs=configs, scores=np.zeros(len(configs)))
        scores = score(configs)
        order = np.argsort(-scores, kind="stable")
        return Candidates(configs=configs[order], scores=scores[order], steps=1)

"""AutoTVM's sampler for diverse batches, which prefers good scores and new knob values."""

from __future__ import annotations

import numpy as np
from chameleon_core.space import Configs
from chameleon_core.stages import Candidates, Sampler, Scores, StageContext, Visited
from numpy.typing import NDArray

from chameleon_samplers.filling import fill
from chameleon_samplers.options import DiversityOptions


class DiversitySampler(Sampler):
    """Picks candidates one at a time, by score and by the number of new knob values.

    Each knob value that the batch does not have yet adds ``alpha`` to a candidate's score.

    The method is that of Chen et al., "Learning to Optimize Tensor Programs" (2018), section 4. The
    objective is submodular, so the greedy batch reaches at least 1 - 1/e of the best batch's
    objective.
    """

    def __init__(self, options: DiversityOptions, context: StageContext) -> None:
        self._options = options
        self._space = context.space
        self._rng = context.rng

    def select(self, candidates: Candidates, visited: Visited, count: int) -> Configs:
        order = np.argsort(-candidates.scores, kind="stable")
        order = order[visited.fresh(candidates.configs[order])]
        if self._options.ratio is not None:
            order = order[: self._options.ratio * count]
        plan = candidates.configs[order]
        picked = self._picked(plan, candidates.scores[order], count)
        return fill(
            self._space,
            self._space.distinct(plan[picked]),
            plan,
            visited=visited,
            count=count,
            rng=self._rng,
        )

    def _picked(self, plan: Configs, scores: Scores, count: int) -> NDArray[np.intp]:
        """Row numbers of the plan in the order of picking, shape (at most ``count``,)."""
        cardinalities = self._space.cardinalities
        # Every choice of every knob gets a place in one table of what is not covered yet.
        columns = plan + np.concatenate([[0], np.cumsum(cardinalities)[:-1]])
        missing = np.ones(int(cardinalities.sum()), np.bool_)
        gains = self._options.score_weight * scores
        picked: list[int] = []
        for _ in range(min(count, len(plan))):
            row = int(np.argmax(gains + self._options.alpha * missing[columns].sum(axis=1)))
            picked.append(row)
            missing[columns[row]] = False
            gains[row] = -np.inf
        return np.array(picked, np.intp)

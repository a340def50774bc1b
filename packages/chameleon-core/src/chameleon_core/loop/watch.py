"""Watches the surrogate while an explorer walks: when did the walk stop finding better ones?"""

from __future__ import annotations

import math

import numpy as np

from chameleon_core.space import Configs
from chameleon_core.stages import ScoreFunction, Scores, Visited


class ScoreWatch:
    """A score function that remembers when its best value for a new configuration came.

    Configurations measured before do not count: a walk often starts at the best of them, and
    would seem to have converged before its first step.

    Args:
        score: the cost model's prediction.
        visited: the configurations measured before.

    Attributes:
        best: the best score of a configuration not visited; minus infinity before the first.
    """

    def __init__(self, score: ScoreFunction, visited: Visited) -> None:
        self.best = -math.inf
        self._score = score
        self._visited = visited
        self._scored = 0
        self._scored_at_best = 0

    def __call__(self, configs: Configs) -> Scores:
        """Score configurations, shape (n, knobs), and look whether one is better than before."""
        scores = self._score(configs)
        better = np.flatnonzero(scores > self.best)
        if len(better):
            better = better[self._visited.fresh(configs[better])]
        if len(better):
            first = better[np.argmax(scores[better])]
            self.best = float(scores[first])
            self._scored_at_best = self._scored + int(first) + 1
        self._scored += len(scores)
        return scores

    def converged(self, steps: int) -> int:
        """The step in which the best was scored.

        Args:
            steps: steps of the whole walk. Each is taken to score equally many configurations,
                which holds for chains and episodes that walk side by side.
        """
        if not self._scored:
            return 0
        return math.ceil(steps * self._scored_at_best / self._scored)

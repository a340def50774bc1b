"""What an explorer walks by: the cost model's scores, looked up where the space is small."""

from __future__ import annotations

import math

import numpy as np

from chameleon_core.space import Configs, DesignSpace
from chameleon_core.stages import ScoreFunction, Scores, Visited

_TABULATED = 1 << 15
"""Legal configurations of a space that is scored as a whole: half of what 128 chains or episodes
may ask about in 500 steps, and asked in one call instead of 500."""


class ScoreTable:
    """A score function that asks the model about every configuration, once.

    The model is asked at the first call. Configurations outside the table, which are not legal,
    are the model's own affair.

    Args:
        score: the cost model's prediction.
        everything: all legal configurations, shape (m, knobs).
        space: their space.
    """

    def __init__(self, score: ScoreFunction, everything: Configs, space: DesignSpace) -> None:
        self._score = score
        self._space = space
        keys = space.keys(everything)
        order = np.argsort(keys, kind="stable")
        self._keys, self._everything = keys[order], everything[order]
        self._scores: Scores | None = None

    def __call__(self, configs: Configs) -> Scores:
        """Scores of shape (n,)."""
        if self._scores is None:
            self._scores = self._score(self._everything)
        keys = self._space.keys(configs)
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        scores: Scores = self._scores[places]
        unknown = self._keys[places] != keys
        if unknown.any():
            scores[unknown] = self._score(np.asarray(configs)[unknown])
        return scores


def tabulated(score: ScoreFunction, space: DesignSpace) -> ScoreFunction:
    """The score function itself, or a table of it where the space is small enough for one."""
    everything = space.everything
    if everything is None or not 0 < len(everything) <= _TABULATED:
        return score
    return ScoreTable(score, everything, space)


class WatchedScores:
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


__all__ = ["ScoreTable", "WatchedScores", "tabulated"]

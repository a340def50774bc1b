"""The best configurations that a search has scored, as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from chameleon_core.plugin_api import Candidates, Configs, DesignSpace, Explorer, Scores, Visited
from numpy.typing import NDArray


class BestSet:
    """The ``capacity`` best distinct unvisited configurations among all that a walk offers.

    Attributes:
        configs: the configurations, best first, shape (n, knobs).
        scores: their scores, shape (n,).
    """

    def __init__(self, space: DesignSpace, visited: Visited, capacity: int) -> None:
        self._space = space
        self._visited = visited
        self._capacity = capacity
        self.configs: Configs = np.empty((0, len(space.knobs)), np.int32)
        self.scores: Scores = np.empty(0)
        self._keys = space.keys(self.configs)

    def offer(self, configs: Configs, scores: Scores) -> bool:
        """Add legal configurations (n, knobs) with scores (n,); return whether the set changed."""
        full = len(self.scores) >= self._capacity
        promising = scores > (self.scores[-1] if full else -np.inf)
        if not promising.any():
            return False
        configs, scores = configs[promising], scores[promising]
        new = ~self._contains(self._space.keys(configs))
        configs, scores = configs[new], scores[new]
        unvisited = self._visited.unvisited(configs)
        if not unvisited.any():
            return False
        merged = np.concatenate([self.configs, configs[unvisited]])
        merged_scores = np.concatenate([self.scores, scores[unvisited]])
        keys = self._space.keys(merged)
        # A stable sort, so that the first of equal configurations stays.
        order = np.argsort(-merged_scores, kind="stable")
        _, first = np.unique(keys[order], return_index=True)
        best = order[np.sort(first)][: self._capacity]
        self.configs, self.scores = merged[best], merged_scores[best]
        self._keys = np.sort(keys[best])
        return True

    def fill(
        self, score: Explorer.ScoreFunction, rng: np.random.Generator, steps: int
    ) -> Candidates:
        """The candidates of the set, filled up to the capacity with random ones."""
        if len(self.scores) < self._capacity:
            # Twice as many, because some may be in the set already.
            more = self._visited.sample(2 * self._capacity, rng)
            if len(more):
                self.offer(more, score(more))
        return Candidates(configs=self.configs, scores=self.scores, steps=steps)

    def _contains(self, keys: NDArray[Any]) -> NDArray[np.bool_]:
        if not len(self._keys):
            return np.zeros(len(keys), np.bool_)
        rows = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        members: NDArray[np.bool_] = self._keys[rows] == keys
        return members

"""A set of the best configurations that a search has scored, kept as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from chameleon_core.plugin_api import (
    Candidates,
    Configs,
    DesignSpace,
    ScoreFunction,
    Scores,
    Visited,
)
from numpy.typing import NDArray


class BestSet:
    """Keeps the ``capacity`` best distinct configurations of all that a walk offers.

    Configurations that were measured before are not kept. One comparison of arrays drops most
    offers, so a walk can offer thousands of configurations per step.

    Args:
        space: The design space of the configurations.
        visited: The configurations that were measured before.
        capacity: The largest number of configurations to keep, at least 1.

    Attributes:
        configs: The kept configurations, best first, shape (n, knobs).
        scores: The scores of the kept configurations, shape (n,).
    """

    def __init__(self, space: DesignSpace, visited: Visited, capacity: int) -> None:
        self._space = space
        self._visited = visited
        self._capacity = capacity
        self.configs: Configs = np.empty((0, len(space.knobs)), np.int32)
        self.scores: Scores = np.empty(0)
        self._keys = space.keys(self.configs)

    def offer(self, configs: Configs, scores: Scores) -> bool:
        """Add the configurations that score higher than the worst kept one, or that still fit.

        Args:
            configs: Legal configurations, shape (n, knobs).
            scores: The scores of these configurations, shape (n,).

        Returns:
            Whether the set changed.
        """
        full = len(self.scores) >= self._capacity
        promising = scores > (self.scores[-1] if full else -np.inf)
        if not promising.any():
            return False
        configs, scores = configs[promising], scores[promising]
        new = ~self._holds(self._space.keys(configs))
        configs, scores = configs[new], scores[new]
        fresh = self._visited.fresh(configs)
        if not fresh.any():
            return False
        merged = np.concatenate([self.configs, configs[fresh]])
        merged_scores = np.concatenate([self.scores, scores[fresh]])
        keys = self._space.keys(merged)
        # Best first; among equals the one seen first, so that results do not depend on the sort.
        order = np.argsort(-merged_scores, kind="stable")
        _, first = np.unique(keys[order], return_index=True)
        best = order[np.sort(first)][: self._capacity]
        self.configs, self.scores = merged[best], merged_scores[best]
        self._keys = np.sort(keys[best])
        return True

    def filled(self, score: ScoreFunction, rng: np.random.Generator, steps: int) -> Candidates:
        """Return the kept configurations, filled up to the capacity with random ones.

        Args:
            score: The function that scores configurations.
            rng: The generator of the random configurations.
            steps: The number of steps of the search, which the result reports.
        """
        if len(self.scores) < self._capacity:
            # Twice as many, since those that the search found come up again.
            more = self._visited.sample(2 * self._capacity, rng)
            if len(more):
                self.offer(more, score(more))
        return Candidates(configs=self.configs, scores=self.scores, steps=steps)

    def _holds(self, keys: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether the set holds each of the configurations with these keys, shape (n,)."""
        if not len(self._keys):
            return np.zeros(len(keys), np.bool_)
        rows = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        members: NDArray[np.bool_] = self._keys[rows] == keys
        return members

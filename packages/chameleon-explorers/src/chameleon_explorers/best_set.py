"""The best distinct configurations seen during a walk, as arrays."""

from __future__ import annotations

import numpy as np
from chameleon_core.space import Configs, DesignSpace, Keys
from chameleon_core.stages import Scores, Visited
from numpy.typing import NDArray


class BestSet:
    """Keeps the ``capacity`` best distinct unvisited configurations that were offered.

    Most offers are worse than all that is kept, and one comparison of scores drops them; only
    the few that are left are identified. No Python object is made per candidate.

    Args:
        space: the space of the configurations.
        visited: configurations not to keep.
        capacity: how many to keep, at least 1.
    """

    def __init__(self, space: DesignSpace, visited: Visited, capacity: int) -> None:
        self._space = space
        self._visited = visited
        self._capacity = capacity
        self.configs: Configs = np.empty((0, len(space.knobs)), np.int32)
        self.scores: Scores = np.empty(0)
        self._keys = space.keys(self.configs)

    def offer(self, configs: Configs, scores: Scores) -> bool:
        """Keep the configurations that are better than those kept so far.

        Args:
            configs: legal configurations, shape (n, knobs).
            scores: their scores, shape (n,).

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

    def _holds(self, keys: Keys) -> NDArray[np.bool_]:
        """Which of the configurations are kept already, shape (n,)."""
        if not len(self._keys):
            return np.zeros(len(keys), np.bool_)
        rows = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        members: NDArray[np.bool_] = self._keys[rows] == keys
        return members

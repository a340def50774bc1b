"""A task's measurements, sorted and searchable, for explorers without a cost model."""

from __future__ import annotations

import numpy as np
from chameleon_core.space import Configs, DesignSpace
from chameleon_core.stages import Observations
from numpy.typing import NDArray


class History:
    """The measurements of one task, sorted by time and searchable by configuration.

    Args:
        space: The task's design space.
        observations: All measurements of the task so far.

    Attributes:
        best: The configurations that were timed, fastest first, shape (n, knobs).
        costs: The times of these configurations in seconds, shape (n,).
    """

    def __init__(self, space: DesignSpace, observations: Observations) -> None:
        self._space = space
        costs = observations.costs
        # A cost of zero or not-a-number comes from a broken clock, not from a fast kernel.
        usable = np.isfinite(costs) & (costs > 0)
        costs = np.where(usable, costs, np.inf)
        keys = space.keys(observations.configs)
        sorting = np.argsort(keys, kind="stable")
        self._keys, self._costs = keys[sorting], costs[sorting]
        timed = np.flatnonzero(usable)
        order = timed[np.argsort(costs[timed], kind="stable")]
        self.best: Configs = observations.configs[order]
        self.costs: NDArray[np.float64] = costs[order]

    @classmethod
    def nothing(cls, space: DesignSpace) -> History:
        """A history without measurements, for the start of a search."""
        return cls(space, Observations.of(space, []))

    def cost_of(self, configs: Configs) -> NDArray[np.float64]:
        """The measured time of each configuration in seconds, shape (n,).

        The time is infinity if the measurement failed, and NaN if there is no measurement.

        Args:
            configs: Configurations, shape (n, knobs).
        """
        costs = np.full(len(configs), np.nan)
        if len(configs) and len(self._keys):
            keys = self._space.keys(configs)
            rows = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
            same = np.asarray(self._keys[rows] == keys, np.bool_)
            costs[same] = self._costs[rows[same]]
        return costs

"""Neighbours, random changes, rankings and sorted measurements, for search without a cost model."""

from __future__ import annotations

import numpy as np
from chameleon_core.plugin_api import Candidates, Configs, DesignSpace, Observations, Visited
from numpy.typing import NDArray


def nothing(space: DesignSpace) -> Configs:
    """An empty array of configurations, shape (0, knobs)."""
    return np.empty((0, len(space.knobs)), np.int32)


def neighbourhoods(space: DesignSpace, configs: Configs, rng: np.random.Generator) -> Configs:
    """The configurations that differ from one of ``configs`` by one index step in one knob.

    The neighbours of one configuration are in random order, so that no knob comes first every time.

    ``configs`` are the configurations whose neighbours are wanted, shape (n, knobs).

    Returns:
        Distinct legal configurations, shape (m, knobs).
    """
    if not len(configs):
        return nothing(space)
    unit = np.eye(len(space.knobs), dtype=np.int32)
    steps = np.concatenate([unit, -unit])
    shuffled = steps[rng.random((len(configs), len(steps))).argsort(axis=1)]
    return usable(space, (configs[:, None, :] + shuffled).reshape(-1, len(space.knobs)))


def usable(space: DesignSpace, configs: Configs) -> Configs:
    """Select the distinct legal configurations among index vectors, in their order.

    ``configs`` has index vectors, shape (n, knobs). Indices may be out of a knob's range.

    Returns:
        Distinct legal configurations, shape (m, knobs).
    """
    configs = configs[((configs >= 0) & (configs < space.cardinalities)).all(axis=1)]
    configs = space.distinct(space.canonical(configs))
    legal: Configs = configs[space.legal(configs)]
    return legal


def kicked(
    space: DesignSpace, config: Configs, knobs: int, count: int, rng: np.random.Generator
) -> Configs:
    """Random changes of a configuration, with which a local search leaves a local optimum.

    ``config`` is the configuration to change, shape (knobs,).

    Returns:
        Distinct legal configurations, at most ``count``, shape (n, knobs).
    """
    width = len(space.knobs)
    # Only knobs with a choice are worth drawing.
    lots = rng.random((count, width)) * (space.cardinalities > 1)
    drawn = np.zeros((count, width), np.bool_)
    chosen = np.argsort(-lots, axis=1)[:, : min(knobs, width)]
    np.put_along_axis(drawn, chosen, values=True, axis=1)
    values = (rng.random((count, width)) * space.cardinalities).astype(np.int32)
    return usable(space, np.where(drawn, values, config).astype(np.int32))


def ranked(configs: Configs, visited: Visited, count: int, *, steps: int = 0) -> Candidates:
    """Candidates in the order of ``configs``, with scores that fall from 1 towards 0.

    The scores only express the order, so that a sampler that takes the best scores keeps the order.

    ``configs`` are configurations, the most wanted first, shape (n, knobs).
    """
    configs = configs[visited.unvisited(configs)][:count].astype(np.int32)
    scores = np.linspace(1.0, 0.0, len(configs), endpoint=False)
    return Candidates(configs=configs, scores=scores, steps=steps)


class History:
    """The measurements of one task, sorted by time and searchable by configuration.

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

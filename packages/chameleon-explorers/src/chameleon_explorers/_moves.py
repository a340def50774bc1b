"""Moves of searches without a cost model: neighbours, random changes, and sorted measurements."""

from __future__ import annotations

import numpy as np
from chameleon_core.plugin_api import Candidates, Configs, DesignSpace, Observations, Visited
from numpy.typing import NDArray


def no_configs(space: DesignSpace) -> Configs:
    """An empty array of configurations, shape (0, knobs)."""
    return np.empty((0, len(space.knobs)), np.int32)


def neighbours_of(space: DesignSpace, configs: Configs, rng: np.random.Generator) -> Configs:
    """Legal configurations, shape (m, knobs), one index step in one knob away from ``configs``.

    The neighbours of one configuration are in random order, so that no knob comes first every time.
    """
    if not len(configs):
        return no_configs(space)
    unit = np.eye(len(space.knobs), dtype=np.int32)
    steps = np.concatenate([unit, -unit])
    shuffled = steps[rng.random((len(configs), len(steps))).argsort(axis=1)]
    return legal_configs(space, (configs[:, None, :] + shuffled).reshape(-1, len(space.knobs)))


def legal_configs(space: DesignSpace, configs: Configs) -> Configs:
    """The distinct legal configurations among index vectors, shape (m, knobs), in their order.

    Indices may be out of a knob's range.
    """
    configs = configs[((configs >= 0) & (configs < space.cardinalities)).all(axis=1)]
    configs = space.distinct(space.canonical(configs))
    legal: Configs = configs[space.legal(configs)]
    return legal


def perturb(
    space: DesignSpace, config: Configs, knobs: int, count: int, rng: np.random.Generator
) -> Configs:
    """At most ``count`` random changes of a configuration, to leave a local optimum, (n, knobs)."""
    width = len(space.knobs)
    # Only knobs with a choice are worth drawing.
    draws = rng.random((count, width)) * (space.cardinalities > 1)
    changed = np.zeros((count, width), np.bool_)
    chosen = np.argsort(-draws, axis=1)[:, : min(knobs, width)]
    np.put_along_axis(changed, chosen, values=True, axis=1)
    values = (rng.random((count, width)) * space.cardinalities).astype(np.int32)
    return legal_configs(space, np.where(changed, values, config).astype(np.int32))


def in_order(configs: Configs, visited: Visited, count: int, *, steps: int = 0) -> Candidates:
    """Candidates in the order of ``configs``, expressed by scores that fall from 1 towards 0."""
    configs = configs[visited.unvisited(configs)][:count].astype(np.int32)
    scores = np.linspace(1.0, 0.0, len(configs), endpoint=False)
    return Candidates(configs=configs, scores=scores, steps=steps)


class History:
    """The measurements of one task, sorted by time and searchable by configuration.

    Attributes:
        best: the configurations that were timed, fastest first, shape (n, knobs).
        costs: their times in seconds, shape (n,).
    """

    def __init__(self, space: DesignSpace, observations: Observations) -> None:
        self._space = space
        costs = observations.costs
        # A cost of zero or NaN comes from a broken clock.
        timed = np.isfinite(costs) & (costs > 0)
        costs = np.where(timed, costs, np.inf)
        keys = space.keys(observations.configs)
        sorting = np.argsort(keys, kind="stable")
        self._keys, self._costs = keys[sorting], costs[sorting]
        rows = np.flatnonzero(timed)
        order = rows[np.argsort(costs[rows], kind="stable")]
        self.best: Configs = observations.configs[order]
        self.costs: NDArray[np.float64] = costs[order]

    @classmethod
    def empty(cls, space: DesignSpace) -> History:
        return cls(space, Observations.of(space, []))

    def cost_of(self, configs: Configs) -> NDArray[np.float64]:
        """The measured seconds, shape (n,): infinity for a failure, NaN without a measurement."""
        costs = np.full(len(configs), np.nan)
        if len(configs) and len(self._keys):
            keys = self._space.keys(configs)
            rows = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
            same = np.asarray(self._keys[rows] == keys, np.bool_)
            costs[same] = self._costs[rows[same]]
        return costs

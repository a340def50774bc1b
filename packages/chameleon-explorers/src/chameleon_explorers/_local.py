"""Iterated local search on measured times, which proposes a batch at a time."""

from __future__ import annotations

import numpy as np
from chameleon_core import plugin_api as stages
from chameleon_core.plugin_api import Configs

from chameleon_explorers._moves import History, kicked, neighbourhoods, nothing, ranked
from chameleon_explorers._options import LocalOptions

_PARENTS = 16
"""The number of configurations whose neighbours are computed at a time."""

_TRIES = 8
"""Random changes to try per wanted starting point, since many are illegal or measured."""


class Climb:
    """The state of a local search that makes one hill climb after another.

    Attributes:
        at: The configuration that the current climb has reached, shape (knobs,). None before the
            starting points of the next climb are measured.
        starts: The configurations proposed as starting points of the latest climb, shape (n,
            knobs). The climb begins at the fastest of them.
    """

    def __init__(self, starts: Configs) -> None:
        self.at: Configs | None = None
        self.starts = starts


class LocalExplorer(stages.Explorer):
    """Iterated local search with steps of one in one knob, which needs no cost model."""

    def __init__(self, options: LocalOptions, context: stages.StageContext) -> None:
        self._options = options
        self._space = context.space
        self._rng = context.rng
        self._batch = context.batch_size
        self._history = History.nothing(context.space)
        self._climbs = [Climb(nothing(context.space)) for _ in range(options.climbs)]

    def observe(self, observations: stages.Observations) -> None:
        """Store all measurements so far."""
        self._history = History(self._space, observations)

    def explore(
        self, score: stages.ScoreFunction | None, visited: stages.Visited, count: int
    ) -> stages.Candidates:
        """Propose configurations in the order in which they should be measured."""
        if not len(self._history.best):
            return ranked(visited.sample(count, self._rng), visited, count)
        around = self._around_the_best(visited, count)
        if self._options.guided and score is not None and len(around):
            around = around[np.argsort(-score(around), kind="stable")]
        # Rounded up or down at random, so that batches of one take part in the climbs too.
        slots = min(self._batch, int(self._options.share * self._batch + self._rng.random()))
        head = around[: self._batch - slots]
        parts = [head]
        for index, climb in enumerate(self._climbs):
            own = slots // len(self._climbs) + (index < slots % len(self._climbs))
            if own:
                parts.append(self._continued(climb, visited, own))
        proposed = self._space.distinct(np.concatenate([*parts, around[len(head) :]]))
        if len(proposed) < min(count, self._batch):
            proposed = np.concatenate([proposed, visited.sample(count, self._rng)])
            proposed = self._space.distinct(proposed)
        return ranked(proposed, visited, count)

    def _around_the_best(self, visited: stages.Visited, count: int) -> Configs:
        """Unmeasured neighbours of the fastest configurations; the fastest one's come first."""
        near_best = nothing(self._space)
        for begin in range(0, len(self._history.best), _PARENTS):
            parents = self._history.best[begin : begin + _PARENTS]
            near = neighbourhoods(self._space, parents, self._rng)
            near = near[visited.unvisited(near)]
            near_best = self._space.distinct(np.concatenate([near_best, near]))
            if len(near_best) >= count:
                break
        return near_best[:count]

    def _continued(self, climb: Climb, visited: stages.Visited, slots: int) -> Configs:
        """The next configurations of a climb: neighbours, or new starting points at its end."""
        if climb.at is None:
            costs = self._history.cost_of(climb.starts)
            if np.isfinite(costs).any():
                climb.at = climb.starts[int(np.nanargmin(costs))]
        while climb.at is not None:
            near = neighbourhoods(self._space, climb.at[None], self._rng)
            costs = self._history.cost_of(near)
            here = self._history.cost_of(climb.at[None])[0]
            if (costs < here).any():
                climb.at = near[int(np.nanargmin(costs))]
                continue
            near = near[visited.unvisited(near)]
            if len(near):
                return near[:slots]
            climb.at = None
        climb.starts = self._starts(visited, slots)
        return climb.starts

    def _starts(self, visited: stages.Visited, count: int) -> Configs:
        """Starting points of a new climb: changes of the best configuration, or random ones."""
        starts = nothing(self._space)
        if self._rng.random() >= self._options.restart:
            starts = kicked(
                self._space, self._history.best[0], self._options.kick, _TRIES * count, self._rng
            )
            starts = starts[visited.unvisited(starts)][:count]
        return starts if len(starts) else visited.sample(count, self._rng)

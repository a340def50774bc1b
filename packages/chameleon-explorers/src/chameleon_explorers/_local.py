"""Iterated local search on measured times, which proposes a batch at a time."""

from __future__ import annotations

import numpy as np
from chameleon_core import plugin_api as stages
from chameleon_core.plugin_api import Configs

from chameleon_explorers._moves import History, in_order, neighbours_of, no_configs, perturb
from chameleon_explorers._options import LocalOptions

_PARENTS = 16
"""The number of configurations whose neighbours are computed at a time."""

_TRIES = 8
"""Random changes to try per wanted starting point, since many are illegal or measured."""


class Climb:
    """The state of one hill climb after another.

    Attributes:
        current: the configuration that the climb has reached, shape (knobs,); None before its
            starting points are measured.
        starts: the starting points of the latest climb, shape (n, knobs), which begins at the
            fastest.
    """

    def __init__(self, starts: Configs) -> None:
        self.current: Configs | None = None
        self.starts = starts


class LocalExplorer(stages.Explorer):
    """Iterated local search with steps of one in one knob, which needs no cost model.

    One part of each batch goes to unvisited neighbours of the fastest configurations, the rest to
    climbs. A climb ends if no neighbour is faster, and restarts at a random configuration or a
    random change of the best one.
    """

    def __init__(self, options: LocalOptions, context: stages.StageContext) -> None:
        self._options = options
        self._space = context.space
        self._rng = context.rng
        self._batch = context.batch_size
        self._history = History.empty(context.space)
        self._climbs = [Climb(no_configs(context.space)) for _ in range(options.climbs)]

    def observe(self, observations: stages.Observations) -> None:
        self._history = History(self._space, observations)

    def explore(
        self, score: stages.Explorer.ScoreFunction | None, visited: stages.Visited, count: int
    ) -> stages.Candidates:
        if not len(self._history.best):
            return in_order(visited.sample(count, self._rng), visited, count)
        neighbours = self._neighbours_of_best(visited, count)
        if self._options.guided and score is not None and len(neighbours):
            neighbours = neighbours[np.argsort(-score(neighbours), kind="stable")]
        # Rounded up or down at random, so that batches of one have climbs too.
        slots = min(self._batch, int(self._options.share * self._batch + self._rng.random()))
        head = neighbours[: self._batch - slots]
        parts = [head]
        for index, climb in enumerate(self._climbs):
            climb_slots = slots // len(self._climbs) + (index < slots % len(self._climbs))
            if climb_slots:
                parts.append(self._advance(climb, visited, climb_slots))
        proposed = self._space.distinct(np.concatenate([*parts, neighbours[len(head) :]]))
        if len(proposed) < min(count, self._batch):
            proposed = np.concatenate([proposed, visited.sample(count, self._rng)])
            proposed = self._space.distinct(proposed)
        return in_order(proposed, visited, count)

    def _neighbours_of_best(self, visited: stages.Visited, count: int) -> Configs:
        """Unvisited neighbours of the fastest configurations, those of the fastest one first."""
        near_best = no_configs(self._space)
        for begin in range(0, len(self._history.best), _PARENTS):
            parents = self._history.best[begin : begin + _PARENTS]
            neighbours = neighbours_of(self._space, parents, self._rng)
            neighbours = neighbours[visited.unvisited(neighbours)]
            near_best = self._space.distinct(np.concatenate([near_best, neighbours]))
            if len(near_best) >= count:
                break
        return near_best[:count]

    def _advance(self, climb: Climb, visited: stages.Visited, slots: int) -> Configs:
        """The next configurations of a climb: neighbours, or new starting points at its end."""
        if climb.current is None:
            costs = self._history.cost_of(climb.starts)
            if np.isfinite(costs).any():
                climb.current = climb.starts[int(np.nanargmin(costs))]
        while climb.current is not None:
            neighbours = neighbours_of(self._space, climb.current[None], self._rng)
            costs = self._history.cost_of(neighbours)
            current_cost = self._history.cost_of(climb.current[None])[0]
            if (costs < current_cost).any():
                climb.current = neighbours[int(np.nanargmin(costs))]
                continue
            neighbours = neighbours[visited.unvisited(neighbours)]
            if len(neighbours):
                return neighbours[:slots]
            climb.current = None
        climb.starts = self._starts(visited, slots)
        return climb.starts

    def _starts(self, visited: stages.Visited, count: int) -> Configs:
        """Starting points of a new climb: changes of the best configuration, or random ones."""
        starts = no_configs(self._space)
        if self._rng.random() >= self._options.restart:
            starts = perturb(
                self._space, self._history.best[0], self._options.kick, _TRIES * count, self._rng
            )
            starts = starts[visited.unvisited(starts)][:count]
        return starts if len(starts) else visited.sample(count, self._rng)

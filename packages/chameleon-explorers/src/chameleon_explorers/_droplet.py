"""Coordinate descent with growing steps, similar to TVM's Droplet search."""

from __future__ import annotations

import numpy as np
from chameleon_core import plugin_api as stages
from chameleon_core.plugin_api import Configs

from chameleon_explorers._moves import History, in_order, legal_configs, neighbours_of, perturb
from chameleon_explorers._options import DropletOptions


class DropletExplorer(stages.Explorer):
    """Coordinate descent on measured times, which needs no cost model.

    Each round proposes steps down and up in every knob, and further steps in the direction of the
    last improvement. If no step improves, the step length doubles; after the longest step, the
    search restarts at random changes of the best configuration.
    """

    def __init__(self, options: DropletOptions, context: stages.StageContext) -> None:
        self._options = options
        self._space = context.space
        self._rng = context.rng
        self._batch = context.batch_size
        self._history = History.empty(context.space)
        self._current: Configs | None = None
        self._step = 1
        self._direction = np.zeros(len(context.space.knobs), np.int32)
        self._starts: Configs | None = None

    def observe(self, observations: stages.Observations) -> None:
        self._history = History(self._space, observations)

    def explore(
        self,
        score: stages.Explorer.ScoreFunction | None,  # noqa: ARG002 - the contract of explorers has it
        visited: stages.Visited,
        count: int,
    ) -> stages.Candidates:
        if not len(self._history.best):
            return in_order(visited.sample(count, self._rng), visited, count)
        steps = self._next_steps(visited)
        # Neighbours of the best configurations, then random ones, complete the batch.
        neighbours = neighbours_of(self._space, self._history.best[: self._batch], self._rng)
        proposed = self._space.distinct(np.concatenate([steps, neighbours]))
        proposed = proposed[visited.unvisited(proposed)]
        if len(proposed) < min(count, self._batch):
            proposed = np.concatenate([proposed, visited.sample(count, self._rng)])
            proposed = self._space.distinct(proposed)
        return in_order(proposed, visited, count)

    def _next_steps(self, visited: stages.Visited) -> Configs:
        """Unvisited steps from the current configuration, or starting points of a new descent."""
        longest = int(self._space.cardinalities.max()) - 1
        current = self._current_config()
        while True:
            steps = self._steps_from(current)
            costs = self._history.cost_of(steps)
            if (costs < self._history.cost_of(current[None])[0]).any():
                better = steps[int(np.nanargmin(costs))]
                self._direction, self._step, current = better - current, 1, better
                continue
            unvisited = steps[visited.unvisited(steps)]
            if len(unvisited):
                self._current = current
                return unvisited
            if self._step >= longest:
                break
            self._step, self._direction = 2 * self._step, np.zeros_like(self._direction)
        self._current, self._step = None, 1
        self._starts = perturb(
            self._space, self._history.best[0], self._options.kick, 8 * self._batch, self._rng
        )
        self._starts = self._starts[visited.unvisited(self._starts)][: self._batch]
        return self._starts

    def _current_config(self) -> Configs:
        """The current configuration, or a new one after a restart, shape (knobs,)."""
        if self._current is None:
            self._direction = np.zeros_like(self._direction)
            self._current = self._history.best[0]
            if self._starts is not None:
                costs = self._history.cost_of(self._starts)
                if np.isfinite(costs).any():
                    self._current = self._starts[int(np.nanargmin(costs))]
        return self._current

    def _steps_from(self, current: Configs) -> Configs:
        """Steps of the current length in every knob, after steps in the last direction."""
        unit = np.eye(len(current), dtype=np.int32) * self._step
        along = (
            current + np.outer([1, 2, 4], self._direction)
            if self._direction.any()
            else current[None]
        )
        every = self._rng.permutation(np.concatenate([current + unit, current - unit]))
        moved = np.concatenate([along, every]).astype(np.int32)
        return legal_configs(self._space, moved)

"""Coordinate descent with growing steps, similar to TVM's Droplet search."""

from __future__ import annotations

import numpy as np
from chameleon_core import plugin_api as stages
from chameleon_core.plugin_api import Configs

from chameleon_explorers._moves import History, kicked, neighbourhoods, ranked, usable
from chameleon_explorers._options import DropletOptions


class DropletExplorer(stages.Explorer):
    """Coordinate descent on measured times, which needs no cost model."""

    def __init__(self, options: DropletOptions, context: stages.StageContext) -> None:
        self._options = options
        self._space = context.space
        self._rng = context.rng
        self._batch = context.batch_size
        self._history = History.nothing(context.space)
        self._at: Configs | None = None
        self._step = 1
        self._direction = np.zeros(len(context.space.knobs), np.int32)
        self._starts: Configs | None = None

    def observe(self, observations: stages.Observations) -> None:
        """Store all measurements so far."""
        self._history = History(self._space, observations)

    def explore(
        self,
        score: stages.ScoreFunction | None,  # noqa: ARG002 - part of the contract
        visited: stages.Visited,
        count: int,
    ) -> stages.Candidates:
        """Propose configurations in the order in which they should be measured."""
        if not len(self._history.best):
            return ranked(visited.sample(count, self._rng), visited, count)
        steps = self._next_steps(visited)
        # The rest of a batch is neighbours of the best, then random configurations.
        near = neighbourhoods(self._space, self._history.best[: self._batch], self._rng)
        proposed = self._space.distinct(np.concatenate([steps, near]))
        proposed = proposed[visited.unvisited(proposed)]
        if len(proposed) < min(count, self._batch):
            proposed = np.concatenate([proposed, visited.sample(count, self._rng)])
            proposed = self._space.distinct(proposed)
        return ranked(proposed, visited, count)

    def _next_steps(self, visited: stages.Visited) -> Configs:
        """Unmeasured steps from the current configuration, after all measured improvements."""
        longest = int(self._space.cardinalities.max()) - 1
        at = self._landed()
        while True:
            steps = self._around(at)
            costs = self._history.cost_of(steps)
            if (costs < self._history.cost_of(at[None])[0]).any():
                better = steps[int(np.nanargmin(costs))]
                self._direction, self._step, at = better - at, 1, better
                continue
            fresh = steps[visited.unvisited(steps)]
            if len(fresh):
                self._at = at
                return fresh
            if self._step >= longest:
                break
            self._step, self._direction = 2 * self._step, np.zeros_like(self._direction)
        self._at, self._step = None, 1
        self._starts = kicked(
            self._space, self._history.best[0], self._options.kick, 8 * self._batch, self._rng
        )
        self._starts = self._starts[visited.unvisited(self._starts)][: self._batch]
        return self._starts

    def _landed(self) -> Configs:
        """The current configuration, or a new one after a restart, shape (knobs,)."""
        if self._at is None:
            self._direction = np.zeros_like(self._direction)
            self._at = self._history.best[0]
            if self._starts is not None:
                costs = self._history.cost_of(self._starts)
                if np.isfinite(costs).any():
                    self._at = self._starts[int(np.nanargmin(costs))]
        return self._at

    def _around(self, at: Configs) -> Configs:
        """Steps of the current length in every knob; steps in the last direction come first."""
        unit = np.eye(len(at), dtype=np.int32) * self._step
        along = at + np.outer([1, 2, 4], self._direction) if self._direction.any() else at[None]
        every = self._rng.permutation(np.concatenate([at + unit, at - unit]))
        moved = np.concatenate([along, every]).astype(np.int32)
        return usable(self._space, moved)

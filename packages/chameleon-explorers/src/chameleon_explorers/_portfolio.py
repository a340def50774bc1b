"""An explorer that gives each round to one of several explorers, by their recent success."""

from __future__ import annotations

import math

import attrs
from chameleon_core import plugin_api as stages
from chameleon_core.plugin_api import create_stage

from chameleon_explorers._options import PortfolioOptions


@attrs.define(kw_only=True)
class Arm:
    """An arm of the bandit: one explorer, and the improvement that its rounds brought.

    Attributes:
        rounds: the discounted number of rounds that the explorer got.
        improvement: the discounted sum over these rounds of the share by which the lowest time
            fell.
    """

    explorer: stages.Explorer
    rounds: float = 0.0
    improvement: float = 0.0


class PortfolioExplorer(stages.Explorer):
    """Gives each round to one of several explorers; every explorer sees all measurements.

    The choice follows a discounted upper confidence bound (Garivier and Moulines, 2011, section
    2.1).
    """

    def __init__(self, options: PortfolioOptions, context: stages.StageContext) -> None:
        self._options = options
        generators = context.rng.spawn(len(options.explorers))
        self._arms = [
            Arm(explorer=create_stage("explorers", member, attrs.evolve(context, rng=rng)))
            for member, rng in zip(options.explorers, generators, strict=True)
        ]
        self._chosen: Arm | None = None
        self._best_cost = math.inf

    def explore(
        self, score: stages.Explorer.ScoreFunction | None, visited: stages.Visited, count: int
    ) -> stages.Candidates:
        for arm in sorted(self._arms, key=self._upper_confidence_bound, reverse=True):
            candidates = arm.explorer.explore(score, visited, count)
            self._chosen = arm
            if len(candidates.configs):
                break
        return candidates

    def observe(self, observations: stages.Observations) -> None:
        """Credit the explorer of the last round with its improvement, and inform all explorers."""
        best = observations.best_cost
        if self._chosen is not None:
            for arm in self._arms:
                arm.rounds *= self._options.discount
                arm.improvement *= self._options.discount
            self._chosen.rounds += 1.0
            self._chosen.improvement += self._gain(best)
            self._chosen = None
        self._best_cost = best
        for arm in self._arms:
            arm.explorer.observe(observations)

    def _gain(self, best: float) -> float:
        """The share by which the lowest time fell; 0 if there is no earlier or no new time."""
        if not math.isfinite(self._best_cost) or not math.isfinite(best):
            return 0.0
        return 1.0 - best / self._best_cost

    def _upper_confidence_bound(self, arm: Arm) -> float:
        """The upper confidence bound of an explorer's improvement per round."""
        if not arm.rounds:
            return math.inf
        # Gains shrink during a search, so they are relative to the best arm's gain.
        scale = max(arm.improvement / arm.rounds for arm in self._arms if arm.rounds) or 1.0
        total = sum(arm.rounds for arm in self._arms)
        exploration = math.sqrt(math.log(1.0 + total) / arm.rounds)
        return arm.improvement / arm.rounds / scale + self._options.curiosity * exploration

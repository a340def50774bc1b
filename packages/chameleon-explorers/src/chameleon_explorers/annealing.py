"""AutoTVM's simulated annealing over the cost model's scores, vectorised over its chains."""

from __future__ import annotations

import numpy as np
from chameleon_core.space import Configs
from chameleon_core.stages import (
    Candidates,
    Explorer,
    Observations,
    ScoreFunction,
    Scores,
    StageContext,
    Visited,
)
from numpy.typing import NDArray

from chameleon_explorers.best_set import BestSet
from chameleon_explorers.options import AnnealingOptions

_COLD = 1e-5
"""Added to the temperature, which ends at 0."""


class AnnealingExplorer(Explorer):
    """Parallel chains of single-knob moves under a falling temperature.

    Chen et al., "Learning to Optimize Tensor Programs" (2018), section 5.2. The chains persist
    from round to round, since the scores change little between two fits of the model.
    """

    def __init__(self, options: AnnealingOptions, context: StageContext) -> None:
        self._options = options
        self._space = context.space
        self._rng = context.rng
        self._chains: Configs = np.empty((0, len(context.space.knobs)), np.int32)
        self._elites = self._chains

    def observe(self, observations: Observations) -> None:
        """Remember the best configurations measured, where chains are to start from them."""
        timed = np.flatnonzero(np.isfinite(observations.costs))
        order = timed[np.argsort(observations.costs[timed], kind="stable")]
        self._elites = observations.configs[order[: self._options.elites]]

    def explore(self, score: ScoreFunction | None, visited: Visited, count: int) -> Candidates:
        options = self._options
        if score is None:
            configs = visited.sample(count, self._rng)
            return Candidates(configs=configs, scores=np.zeros(len(configs)))
        best = BestSet(self._space, visited, count)
        everything = self._space.everything if options.exhaustive else None
        if everything is not None and 0 < len(everything) <= options.chains * options.steps:
            # Shuffled, since trees give equal scores to neighbours, of which the first are kept.
            shuffled = self._rng.permutation(everything)
            best.offer(shuffled, score(shuffled))
            return Candidates(configs=best.configs, scores=best.scores, steps=1)
        chains = self._starting_points()
        if not len(chains):
            return self._filled(best, score, visited, count, 0)

        # A copy: it is changed below, and the model may keep what it returned.
        scores = score(chains).copy()
        best.offer(chains, scores)
        step, unchanged = 0, 0
        temperatures = np.linspace(options.temperature, 0.0, options.steps, endpoint=False)
        for step, temperature in enumerate(temperatures.tolist(), start=1):  # noqa: B007 - reported
            proposed = self._space.mutate(chains, self._rng)
            proposed_scores = score(proposed)
            taken = self._accept(scores, proposed_scores, temperature)
            chains[taken] = proposed[taken]
            scores[taken] = proposed_scores[taken]
            unchanged = 0 if best.offer(proposed, proposed_scores) else unchanged + 1
            if unchanged >= options.early_stop:
                break
        self._chains = chains
        return self._filled(best, score, visited, count, step)

    def _starting_points(self) -> Configs:
        """The chains where they were left, or new ones, the first of them at the elites."""
        wanted = self._options.chains
        chains = self._chains
        if not self._options.persistent or not len(chains):
            # The space's own guesses are good places to start from, measured or not.
            drawn = self._space.sample(wanted, self._rng)
            chains = self._space.distinct(np.concatenate([self._space.start, drawn]))[:wanted]
            if 0 < len(chains) < wanted:
                # A space with fewer configurations than chains: several chains share one.
                chains = np.resize(chains, (wanted, chains.shape[1]))
        chains = chains.copy()
        elites = self._elites[: len(chains)]
        chains[: len(elites)] = elites
        return chains

    def _accept(self, old: Scores, new: Scores, temperature: float) -> NDArray[np.bool_]:
        """The Metropolis rule for every chain; shape (chains,)."""
        exponent = np.minimum((new - old) / (temperature + _COLD), 0.0)
        accepted: NDArray[np.bool_] = self._rng.random(len(old)) < np.exp(exponent)
        return accepted

    def _filled(
        self, best: BestSet, score: ScoreFunction, visited: Visited, count: int, steps: int
    ) -> Candidates:
        """What the walk found, filled up at random where it saw fewer than ``count``."""
        if len(best.scores) < count:
            # Twice as many, since those that the walk found come up again.
            more = visited.sample(2 * count, self._rng)
            if len(more):
                best.offer(more, score(more))
        return Candidates(configs=best.configs, scores=best.scores, steps=steps)

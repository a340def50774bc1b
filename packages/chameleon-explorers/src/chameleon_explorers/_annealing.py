"""AutoTVM's simulated annealing on the cost model's scores, with all walks as one array."""

from __future__ import annotations

import attrs
import numpy as np
from chameleon_core.plugin_api import (
    Candidates,
    Configs,
    Explorer,
    Observations,
    Scores,
    StageContext,
    Visited,
)
from numpy.typing import NDArray

from chameleon_explorers._best_set import BestSet
from chameleon_explorers._options import AnnealingOptions

_LEAST_TEMPERATURE = 1e-5
"""Added to the temperature, which ends at 0, to avoid a division by 0."""

_LARGEST_EXHAUSTIVE = 1 << 15
"""The largest space that is scored as a whole with the option ``exhaustive``."""

_LEADERS = 3
"""The number of best measured configurations whose neighbours become candidates."""


class AnnealingExplorer(Explorer):
    """Simulated annealing on the cost model's scores, with many chains in parallel.

    Each step changes one knob of each chain, and the temperature falls to 0 (Chen et al., "Learning
    to Optimize Tensor Programs", 2018, section 5.2).
    """

    def __init__(self, options: AnnealingOptions, context: StageContext) -> None:
        self._options = options
        self._space = context.space
        self._rng = context.rng
        self._batch = context.batch_size
        self._chains: Configs = np.empty((0, len(context.space.knobs)), np.int32)
        self._elites = self._leaders = self._chains

    def observe(self, observations: Observations) -> None:
        ranked = observations.fastest
        self._elites = ranked[: self._options.elites]
        self._leaders = ranked[:_LEADERS]

    def explore(
        self, score: Explorer.ScoreFunction | None, visited: Visited, count: int
    ) -> Candidates:
        if score is None:
            configs = visited.sample(count, self._rng)
            return Candidates(configs=configs, scores=np.zeros(len(configs)))
        best = self._walk(score, visited, count)
        if not self._options.neighbours or not len(self._leaders):
            return best
        return self._add_neighbours(best, score, visited, count)

    def _walk(self, score: Explorer.ScoreFunction, visited: Visited, count: int) -> Candidates:
        """The configurations with the highest scores, by annealing or from the whole space."""
        options = self._options
        best = BestSet(self._space, visited, count)
        configs = self._space.all_legal if options.exhaustive else None
        if configs is not None and 0 < len(configs) <= _LARGEST_EXHAUSTIVE:
            # Trees give equal scores to neighbours, and the first of equal ones stay.
            shuffled = self._rng.permutation(configs)
            best.offer(shuffled, score(shuffled))
            return Candidates(configs=best.configs, scores=best.scores, steps=1)
        chains = self._starting_points()
        if not len(chains):
            return best.fill(score, self._rng, 0)

        # A copy, because it is changed below.
        scores = score(chains).copy()
        best.offer(chains, scores)
        step, unchanged = 0, 0
        temperatures = np.linspace(options.temperature, 0.0, options.steps, endpoint=False)
        for step, temperature in enumerate(temperatures.tolist(), start=1):  # noqa: B007 - reported after the loop
            proposed = self._space.mutate(chains, self._rng)
            proposed_scores = score(proposed)
            accepted = self._accept(scores, proposed_scores, temperature)
            chains[accepted] = proposed[accepted]
            scores[accepted] = proposed_scores[accepted]
            unchanged = 0 if best.offer(proposed, proposed_scores) else unchanged + 1
            if unchanged >= options.early_stop:
                break
        self._chains = chains
        return best.fill(score, self._rng, step)

    def _add_neighbours(
        self, candidates: Candidates, score: Explorer.ScoreFunction, visited: Visited, count: int
    ) -> Candidates:
        """Put neighbours of the best measured configurations before the walk's candidates.

        Otherwise a model that is wrong about these neighbours keeps the search from measuring them.
        """
        # Rounded up or down at random, so that small batches have some too.
        wanted = int(self._options.neighbours * self._batch + self._rng.random())
        if not wanted:
            return candidates
        neighbours = np.concatenate([self._space.neighbours(leader) for leader in self._leaders])
        neighbours = self._space.distinct(neighbours)
        neighbours = neighbours[visited.unvisited(neighbours)]
        if not len(neighbours):
            return candidates
        neighbours = neighbours[np.argsort(-score(neighbours), kind="stable")[:wanted]]
        configs = self._space.distinct(np.concatenate([neighbours, candidates.configs]))
        neighbour_keys = self._space.keys(neighbours)
        rest = candidates.scores[~np.isin(self._space.keys(candidates.configs), neighbour_keys)]
        # Samplers take the best scores, so the scores of neighbours must be higher.
        raised = rest.max(initial=0.0) + np.arange(len(neighbours), 0, -1)
        return attrs.evolve(
            candidates, configs=configs[:count], scores=np.concatenate([raised, rest])[:count]
        )

    def _starting_points(self) -> Configs:
        """The chains' first configurations: elites, then the last round's ends or random ones."""
        wanted = self._options.chains
        chains = self._chains
        if not self._options.persistent or not len(chains):
            drawn = self._space.sample(wanted, self._rng)
            chains = self._space.distinct(np.concatenate([self._space.first_guesses, drawn]))[
                :wanted
            ]
            if 0 < len(chains) < wanted:
                # With fewer configurations than chains, several chains start at the same one.
                chains = np.resize(chains, (wanted, chains.shape[1]))
        chains = chains.copy()
        elites = self._elites[: len(chains)]
        chains[: len(elites)] = elites
        return chains

    def _accept(self, old: Scores, new: Scores, temperature: float) -> NDArray[np.bool_]:
        """Whether each chain accepts its step, by the Metropolis rule; shape (chains,)."""
        exponent = np.minimum((new - old) / (temperature + _LEAST_TEMPERATURE), 0.0)
        accepted: NDArray[np.bool_] = self._rng.random(len(old)) < np.exp(exponent)
        return accepted

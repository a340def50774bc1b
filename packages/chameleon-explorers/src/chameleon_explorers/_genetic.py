"""AutoTVM's genetic algorithm, which selects parents by measurements or by the cost model."""

from __future__ import annotations

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
from chameleon_explorers._moves import in_order, no_configs
from chameleon_explorers._options import GeneticOptions

_TRIES = 16
"""Attempts to breed the missing children, since many are illegal or were measured before."""


class GeneticExplorer(Explorer):
    """A genetic algorithm with roulette selection, one-point crossover and random mutation.

    With ``fitness: measured``, each generation is measured, as in AutoTVM. With ``fitness: model``,
    the cost model scores several generations, and the best candidates are measured.
    """

    def __init__(self, options: GeneticOptions, context: StageContext) -> None:
        self._options = options
        self._space = context.space
        self._rng = context.rng
        self._batch = context.batch_size
        self._queue: Configs = no_configs(context.space)
        self._parents: Configs = self._queue
        self._fitness: Scores = np.empty(0)
        self._measured = 0

    def observe(self, observations: Observations) -> None:
        throughput = observations.relative_throughput
        self._measured = len(observations)
        elites = np.argsort(-throughput, kind="stable")[: self._options.elites]
        last = np.arange(len(observations))[-self._options.population :]
        rows = np.union1d(elites, last)
        self._parents, self._fitness = observations.configs[rows], throughput[rows]

    def explore(
        self, score: Explorer.ScoreFunction | None, visited: Visited, count: int
    ) -> Candidates:
        if score is not None and self._options.fitness == "model":
            return self._evolve(score, visited, count)
        queue = self._queue[visited.unvisited(self._queue)]
        if len(queue) < min(self._batch, count):
            queue = np.concatenate([queue, self._generation(visited)])
            queue = self._space.distinct(queue)
        self._queue = queue
        return in_order(queue, visited, count)

    def _generation(self, visited: Visited) -> Configs:
        """Children of the parents, or random configurations before there are parents."""
        wanted = self._options.population
        if self._measured < wanted:
            return visited.sample(wanted - self._measured, self._rng)
        if not self._fitness.any():
            return visited.sample(wanted, self._rng)
        offspring = no_configs(self._space)
        for _ in range(_TRIES):
            children = self._breed(self._parents, self._fitness, wanted)
            children = children[self._space.legal(children)]
            children = children[visited.unvisited(children)]
            offspring = self._space.distinct(np.concatenate([offspring, children]))
            if len(offspring) >= wanted:
                break
        return offspring[:wanted] if len(offspring) else visited.sample(wanted, self._rng)

    def _breed(self, parents: Configs, fitness: Scores, count: int) -> Configs:
        """Children by crossover and mutation, shape (count, knobs); some may be illegal."""
        width = parents.shape[1]
        chances = self._selection_probabilities(fitness)
        mothers, fathers = self._rng.choice(len(parents), (2, count), p=chances)
        point = self._rng.integers(0, width, (count, 1))
        children = np.where(np.arange(width) < point, parents[mothers], parents[fathers])
        mutated = self._rng.random((count, width)) < self._options.mutation
        drawn = (self._rng.random((count, width)) * self._space.cardinalities).astype(np.int32)
        return self._space.canonical(np.where(mutated, drawn, children).astype(np.int32))

    @staticmethod
    def _selection_probabilities(fitness: Scores) -> NDArray[np.float64]:
        """The probability of each parent, in proportion to its fitness, shape (n,)."""
        positive = np.maximum(fitness, 0.0)
        total = positive.sum()
        if not total > 0:
            return np.full(len(fitness), 1.0 / len(fitness))
        chances: NDArray[np.float64] = positive / total
        return chances

    def _evolve(self, score: Explorer.ScoreFunction, visited: Visited, count: int) -> Candidates:
        """The best configurations of several generations that the cost model scored."""
        options = self._options
        best = BestSet(self._space, visited, count)
        drawn = self._space.sample(options.population, self._rng)
        elites = self._parents[np.argsort(-self._fitness, kind="stable")[: options.elites]]
        population = self._space.distinct(np.concatenate([elites, drawn]))
        if not len(population):
            return Candidates(configs=population, scores=np.empty(0))
        scores = score(population)
        best.offer(population, scores)
        for _ in range(options.generations):
            # Scores of a model may be negative, so the worst score is subtracted.
            children = self._breed(population, scores - scores.min(), options.population)
            children = self._space.distinct(children[self._space.legal(children)])
            if not len(children):
                continue
            survivors = np.argsort(-scores, kind="stable")[: options.elites]
            offspring = score(children)
            best.offer(children, offspring)
            population = np.concatenate([population[survivors], children])
            scores = np.concatenate([scores[survivors], offspring])
        return best.fill(score, self._rng, options.generations)

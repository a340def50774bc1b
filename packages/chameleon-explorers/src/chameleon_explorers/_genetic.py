"""AutoTVM's genetic algorithm, which selects parents by measurements or by the cost model."""

from __future__ import annotations

import numpy as np
from chameleon_core.plugin_api import (
    Candidates,
    Configs,
    Explorer,
    Observations,
    ScoreFunction,
    Scores,
    StageContext,
    Visited,
)
from numpy.typing import NDArray

from chameleon_explorers._best_set import BestSet
from chameleon_explorers._moves import nothing, ranked
from chameleon_explorers._options import GeneticOptions

_TRIES = 16
"""Attempts to breed the missing children, since many are illegal or were measured before."""


class GeneticExplorer(Explorer):
    """A genetic algorithm with roulette selection, one-point crossover and random mutation.

    With ``fitness: measured``, each generation is measured, as in AutoTVM.
    """

    def __init__(self, options: GeneticOptions, context: StageContext) -> None:
        self._options = options
        self._space = context.space
        self._rng = context.rng
        self._batch = context.batch_size
        self._waiting: Configs = nothing(context.space)
        self._parents: Configs = self._waiting
        self._fitness: Scores = np.empty(0)
        self._measured = 0

    def observe(self, observations: Observations) -> None:
        """Choose the last generation and the fastest configurations as parents."""
        throughput = observations.relative_throughput
        self._measured = len(observations)
        elites = np.argsort(-throughput, kind="stable")[: self._options.elites]
        last = np.arange(len(observations))[-self._options.population :]
        rows = np.union1d(elites, last)
        self._parents, self._fitness = observations.configs[rows], throughput[rows]

    def explore(self, score: ScoreFunction | None, visited: Visited, count: int) -> Candidates:
        if score is not None and self._options.fitness == "model":
            return self._evolved(score, visited, count)
        waiting = self._waiting[visited.unvisited(self._waiting)]
        if len(waiting) < min(self._batch, count):
            waiting = np.concatenate([waiting, self._generation(visited)])
            waiting = self._space.distinct(waiting)
        self._waiting = waiting
        return ranked(waiting, visited, count)

    def _generation(self, visited: Visited) -> Configs:
        """Children of the parents, or random configurations before there are parents."""
        wanted = self._options.population
        if self._measured < wanted:
            return visited.sample(wanted - self._measured, self._rng)
        if not self._fitness.any():
            return visited.sample(wanted, self._rng)
        bred = nothing(self._space)
        for _ in range(_TRIES):
            children = self._bred(self._parents, self._fitness, wanted)
            children = children[self._space.legal(children)]
            children = children[visited.unvisited(children)]
            bred = self._space.distinct(np.concatenate([bred, children]))
            if len(bred) >= wanted:
                break
        # Similar parents have the same children again and again; random configurations differ.
        return bred[:wanted] if len(bred) else visited.sample(wanted, self._rng)

    def _bred(self, parents: Configs, fitness: Scores, count: int) -> Configs:
        """Children by crossover and mutation, shape (count, knobs); some may be illegal."""
        width = parents.shape[1]
        chances = self._chances(fitness)
        mothers, fathers = self._rng.choice(len(parents), (2, count), p=chances)
        point = self._rng.integers(0, width, (count, 1))
        children = np.where(np.arange(width) < point, parents[mothers], parents[fathers])
        mutated = self._rng.random((count, width)) < self._options.mutation
        drawn = (self._rng.random((count, width)) * self._space.cardinalities).astype(np.int32)
        return self._space.canonical(np.where(mutated, drawn, children).astype(np.int32))

    @staticmethod
    def _chances(fitness: Scores) -> NDArray[np.float64]:
        """The probability of each parent, in proportion to its fitness, shape (n,)."""
        positive = np.maximum(fitness, 0.0)
        total = positive.sum()
        if not total > 0:
            return np.full(len(fitness), 1.0 / len(fitness))
        chances: NDArray[np.float64] = positive / total
        return chances

    def _evolved(self, score: ScoreFunction, visited: Visited, count: int) -> Candidates:
        """The best configurations of several generations that the cost model scored."""
        options = self._options
        best = BestSet(self._space, visited, count)
        drawn = self._space.sample(options.population, self._rng)
        elites = self._parents[np.argsort(-self._fitness, kind="stable")[: options.elites]]
        people = self._space.distinct(np.concatenate([elites, drawn]))
        if not len(people):
            return Candidates(configs=people, scores=np.empty(0))
        scores = score(people)
        best.offer(people, scores)
        for _ in range(options.generations):
            # Scores of a model may be negative: only their distance to the worst counts.
            children = self._bred(people, scores - scores.min(), options.population)
            children = self._space.distinct(children[self._space.legal(children)])
            if not len(children):
                continue
            survivors = np.argsort(-scores, kind="stable")[: options.elites]
            bred = score(children)
            best.offer(children, bred)
            people = np.concatenate([people[survivors], children])
            scores = np.concatenate([scores[survivors], bred])
        return best.filled(score, self._rng, options.generations)

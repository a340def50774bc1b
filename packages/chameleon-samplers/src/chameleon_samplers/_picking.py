"""Samplers by score, by diversity or at random, and a function that fills up small batches."""

from __future__ import annotations

import numpy as np
from chameleon_core.plugin_api import (
    Candidates,
    Configs,
    DesignSpace,
    NoOptions,
    Sampler,
    Scores,
    StageContext,
    Visited,
)
from numpy.typing import NDArray

from chameleon_samplers._options import DiversityOptions, GreedyOptions


def fill(
    space: DesignSpace,
    batch: Configs,
    reserve: Configs,
    *,
    visited: Visited,
    count: int,
    rng: np.random.Generator,
) -> Configs:
    """Fill up a batch with random configurations, and with candidates if these do not suffice.

    ``batch`` and ``reserve`` have distinct, legal and unvisited configurations, shape (n, knobs).
    """
    if len(batch) >= count:
        return batch[:count]
    # As many as a whole batch, because some may be in the batch already.
    drawn = visited.sample(count, rng)
    return space.distinct(np.concatenate([batch, drawn, reserve]))[:count]


class GreedySampler(Sampler):
    """Selects the candidates with the best scores, and a few random configurations."""

    def __init__(self, options: GreedyOptions, context: StageContext) -> None:
        self._epsilon = options.epsilon
        self._space = context.space
        self._rng = context.rng

    def select(self, candidates: Candidates, visited: Visited, count: int) -> Configs:
        random_picks = self._random_picks(count)
        order = np.argsort(-candidates.scores, kind="stable")
        pool = self._space.distinct(candidates.configs[order])
        pool = pool[visited.unvisited(pool)]
        return fill(
            self._space,
            pool[: count - random_picks],
            pool,
            visited=visited,
            count=count,
            rng=self._rng,
        )

    def _random_picks(self, count: int) -> int:
        """Epsilon times ``count``, rounded at random, so that small batches explore too."""
        return min(count, int(self._epsilon * count + self._rng.random()))


class RandomSampler(Sampler):
    """Selects candidates at random, each with equal probability."""

    def __init__(self, options: NoOptions, context: StageContext) -> None:  # noqa: ARG002
        self._space = context.space
        self._rng = context.rng

    def select(self, candidates: Candidates, visited: Visited, count: int) -> Configs:
        pool = self._space.distinct(candidates.configs)
        pool = pool[visited.unvisited(pool)]
        picked = pool[self._rng.permutation(len(pool))[:count]]
        return fill(self._space, picked, pool, visited=visited, count=count, rng=self._rng)


class DiversitySampler(Sampler):
    """Picks candidates one at a time, by score and by the number of new knob values.

    The objective is submodular (Chen et al., "Learning to Optimize Tensor Programs", 2018, section
    4).
    """

    def __init__(self, options: DiversityOptions, context: StageContext) -> None:
        self._options = options
        self._space = context.space
        self._rng = context.rng

    def select(self, candidates: Candidates, visited: Visited, count: int) -> Configs:
        order = np.argsort(-candidates.scores, kind="stable")
        order = order[visited.unvisited(candidates.configs[order])]
        if self._options.ratio is not None:
            order = order[: self._options.ratio * count]
        pool = candidates.configs[order]
        picked = self._pick_rows(pool, candidates.scores[order], count)
        return fill(
            self._space,
            self._space.distinct(pool[picked]),
            pool,
            visited=visited,
            count=count,
            rng=self._rng,
        )

    def _pick_rows(self, pool: Configs, scores: Scores, count: int) -> NDArray[np.intp]:
        """Rows of the pool in the order of picking, shape (at most ``count``,)."""
        cardinalities = self._space.cardinalities
        # One flag per value of each knob: whether no pick has it yet.
        columns = pool + np.concatenate([[0], np.cumsum(cardinalities)[:-1]])
        missing = np.ones(int(cardinalities.sum()), np.bool_)
        gains = self._options.score_weight * scores
        picked: list[int] = []
        for _ in range(min(count, len(pool))):
            row = int(np.argmax(gains + self._options.alpha * missing[columns].sum(axis=1)))
            picked.append(row)
            missing[columns[row]] = False
            gains[row] = -np.inf
        return np.array(picked, np.intp)

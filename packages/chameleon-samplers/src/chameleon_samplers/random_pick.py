"""The sampler ``random``, which ignores scores, for comparison with other samplers."""

from __future__ import annotations

from chameleon_core.plugins import NoOptions
from chameleon_core.space import Configs
from chameleon_core.stages import Candidates, Sampler, StageContext, Visited

from chameleon_samplers.filling import fill


class RandomSampler(Sampler):
    """Selects candidates at random, each with equal probability."""

    def __init__(self, options: NoOptions, context: StageContext) -> None:  # noqa: ARG002
        self._space = context.space
        self._rng = context.rng

    def select(self, candidates: Candidates, visited: Visited, count: int) -> Configs:
        fresh = self._space.distinct(candidates.configs)
        fresh = fresh[visited.fresh(fresh)]
        picked = fresh[self._rng.permutation(len(fresh))[:count]]
        return fill(self._space, picked, fresh, visited=visited, count=count, rng=self._rng)

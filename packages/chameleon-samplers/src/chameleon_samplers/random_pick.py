"""The sampler that ignores scores: what the others are compared with."""

from __future__ import annotations

from chameleon_core.plugins import NoOptions
from chameleon_core.space import Configs
from chameleon_core.stages import Candidates, Sampler, StageContext, Visited

from chameleon_samplers.filling import fill


class RandomSampler(Sampler):
    """Picks among an explorer's candidates at random, each equally likely."""

    def __init__(self, options: NoOptions, context: StageContext) -> None:  # noqa: ARG002
        self._space = context.space
        self._rng = context.rng

    def select(self, candidates: Candidates, visited: Visited, count: int) -> Configs:
        fresh = self._space.distinct(candidates.configs)
        fresh = fresh[visited.fresh(fresh)]
        picked = fresh[self._rng.permutation(len(fresh))[:count]]
        return fill(self._space, picked, fresh, visited=visited, count=count, rng=self._rng)

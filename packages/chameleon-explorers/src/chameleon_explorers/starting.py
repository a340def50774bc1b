"""What to propose while no cost model guides a walk."""

from __future__ import annotations

import numpy as np
from chameleon_core.space import Configs, DesignSpace
from chameleon_core.stages import Candidates, Visited


def unguided(
    space: DesignSpace,
    visited: Visited,
    count: int,
    rng: np.random.Generator,
    *,
    use_start: bool,
) -> Candidates:
    """Random unvisited configurations, after the space's own guesses where these are wanted.

    Args:
        space: the design space.
        visited: configurations not to propose again.
        count: how many to propose at most.
        rng: the explorer's generator.
        use_start: whether the space's guesses come first.
    """
    configs: Configs = visited.sample(count, rng)
    if use_start and len(space.start):
        guesses = space.start[visited.fresh(space.start)]
        configs = space.distinct(np.concatenate([guesses, configs]))[:count]
    return Candidates(configs=configs, scores=np.zeros(len(configs)))

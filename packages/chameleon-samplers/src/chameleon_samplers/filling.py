"""Completes a batch that is smaller than asked for."""

from __future__ import annotations

import numpy as np
from chameleon_core.space import Configs, DesignSpace
from chameleon_core.stages import Visited


def fill(
    space: DesignSpace,
    batch: Configs,
    reserve: Configs,
    *,
    visited: Visited,
    count: int,
    rng: np.random.Generator,
) -> Configs:
    """The batch, filled up at random from the space, then from a reserve of candidates.

    Args:
        space: the design space.
        batch: distinct legal unvisited configurations that are in already, shape (n, knobs).
        reserve: what to take if rejection sampling finds too few, shape (m, knobs): distinct,
            legal and unvisited; may repeat configurations of the batch.
        visited: configurations not to add.
        count: the size wanted.
        rng: the sampler's generator.
    """
    if len(batch) >= count:
        return batch[:count]
    # Enough of them that those which are in the batch already can be left out.
    drawn = visited.sample(count, rng)
    return space.distinct(np.concatenate([batch, drawn, reserve]))[:count]

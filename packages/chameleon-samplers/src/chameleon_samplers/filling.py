"""Fills up a batch that has too few configurations."""

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
    """Fill up a batch with random configurations, and with candidates if these do not suffice.

    Args:
        space: The design space.
        batch: The batch so far: distinct, legal and unmeasured configurations, shape (n, knobs).
        reserve: Candidates to add if random sampling finds too few configurations, shape (m,
            knobs). They are distinct, legal and unmeasured, and may be in ``batch`` too.
        visited: The configurations that were measured before.
        count: The wanted size of the batch.
        rng: The random generator that draws configurations.

    Returns:
        Distinct configurations, at most ``count``, those of ``batch`` first.
    """
    if len(batch) >= count:
        return batch[:count]
    # Enough of them that those which are in the batch already can be left out.
    drawn = visited.sample(count, rng)
    return space.distinct(np.concatenate([batch, drawn, reserve]))[:count]

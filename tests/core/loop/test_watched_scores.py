"""When a walk stops finding better candidates."""

import numpy as np
from chameleon_core.loop.round.stages import WatchedScores
from chameleon_core.space import Choice, DesignSpace
from chameleon_core.stages import Visited


def rows(*values):
    return np.array(values, np.int32).reshape(-1, 1)


def test_the_step_of_the_best_new_configuration_is_found():
    space = DesignSpace([Choice(name="x", options=tuple(range(100)))])
    visited = Visited(space)
    visited.add(rows(99))
    watch = WatchedScores(lambda configs: configs[:, 0].astype(float), visited)
    # Two chains, five steps; 99 scores highest of all and was measured before.
    for step in ([1, 99], [5, 2], [7, 99], [6, 4], [3, 7]):
        watch(rows(*step))
    assert watch.best == 7.0
    assert watch.converged(5) == 3


def test_a_walk_that_scores_nothing_converges_at_once():
    space = DesignSpace([Choice(name="x", options=(0, 1))])
    assert (
        WatchedScores(lambda configs: configs[:, 0].astype(float), Visited(space)).converged(9) == 0
    )

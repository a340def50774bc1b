"""Coordinate descent: steps, directions, growing lengths."""

import numpy as np
import pytest
from chameleon_core.plugin_api import Visited
from chameleon_explorers._droplet import DropletExplorer
from chameleon_explorers._options import DropletOptions
from chameleon_testing._conformance_cases import context_of, grid, observe, quality


def begun(space, configs, costs, *, seed=0):
    """An explorer that knows the costs of some configurations, and what is visited."""
    configs = np.array(configs, np.int32)
    explorer, visited = DropletExplorer(DropletOptions(), context_of(space, seed=seed)), None
    visited = Visited(space)
    tell(explorer, space, visited, configs, costs)
    return explorer, visited


def tell(explorer, space, visited, configs, costs):
    configs = np.array(configs, np.int32)
    visited.add(configs)
    observations = observe(space, configs)
    observations.costs[:] = costs
    explorer.observe(observations)


def test_the_first_steps_are_one_choice_long():
    explorer, visited = begun(grid(40, 40), [[20, 20]], [1.0])
    first = explorer.explore(None, visited, 4).configs
    assert sorted(map(tuple, first.tolist())) == [(19, 20), (20, 19), (20, 21), (21, 20)]


def test_a_direction_that_helped_is_followed_further():
    space = grid(40, 40)
    explorer, visited = begun(space, [[20, 20]], [1.0])
    explorer.explore(None, visited, 4)
    tell(explorer, space, visited, [[20, 20], [21, 20]], [1.0, 0.5])
    assert explorer.explore(None, visited, 3).configs.tolist() == [[22, 20], [23, 20], [25, 20]]


def test_steps_grow_where_none_helps():
    space = grid(40, 40)
    around = [[20, 20], [19, 20], [21, 20], [20, 19], [20, 21]]
    explorer, visited = begun(space, around, [0.5, 1.0, 1.0, 1.0, 1.0])
    second = explorer.explore(None, visited, 4).configs
    assert sorted(map(tuple, second.tolist())) == [(18, 20), (20, 18), (20, 22), (22, 20)]


def test_after_the_longest_step_it_goes_on_elsewhere():
    space = grid(3, 3, 3, 3)
    at = np.array([1, 1, 1, 1])
    steps = [at, *(at + np.eye(4, dtype=int)), *(at - np.eye(4, dtype=int))]
    explorer, visited = begun(space, steps, [0.5, *[1.0] * 8])
    restarts = explorer.explore(None, visited, 8).configs
    assert len(restarts) == 8
    assert (np.abs(restarts - at).sum(axis=1) >= 2).all()
    # The best of the new places is where it goes on, though a better one is known.
    costs = np.linspace(0.9, 0.6, len(restarts))
    tell(explorer, space, visited, [*steps, *restarts], [0.5, *[1.0] * 8, *costs])
    assert np.abs(explorer.explore(None, visited, 1).configs - restarts[-1]).sum() == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_long_slope_takes_few_rounds(seed):
    # From one corner to the middle of four knobs of 200 choices: 400 single steps.
    space = grid(200, 200, 200, 200)
    explorer = DropletExplorer(DropletOptions(), context_of(space, seed=seed))
    visited, seen = Visited(space), np.zeros((1, 4), np.int32)
    for _ in range(40):
        visited.add(seen)
        explorer.observe(observe(space, seen))
        seen = np.concatenate([seen, explorer.explore(None, visited, 64).configs[:8]])
    top = quality(space, np.full((1, 4), 99))[0]
    assert quality(space, seen).max() > 0.8 * top

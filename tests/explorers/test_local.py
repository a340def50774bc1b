"""Iterated local search: what it proposes, in which order, and that it gets there."""

import numpy as np
import pytest
from chameleon_core.plugin_api import Visited
from chameleon_explorers._local import LocalExplorer
from chameleon_explorers._moves import neighbours_of, perturb
from chameleon_explorers._options import LocalOptions
from chameleon_testing._conformance_cases import context_of, grid, observe, quality
from hypothesis import given
from hypothesis import strategies as st


class Search:
    """An explorer in a loop that measures the first ``batch`` of what it proposes."""

    def __init__(self, space, options, *, seed=0, batch=8, measured=None):
        self.space, self.batch = space, batch
        self.explorer = LocalExplorer(options, context_of(space, seed=seed))
        self.visited = Visited(space)
        self.seen = np.empty((0, len(space.knobs)), np.int32)
        self.tell(
            space.sample(batch, np.random.default_rng(seed)) if measured is None else measured
        )

    def tell(self, configs):
        self.visited.add(configs)
        self.seen = np.concatenate([self.seen, configs])
        self.explorer.observe(observe(self.space, self.seen))

    def round(self):
        batch = self.explorer.explore(None, self.visited, 8 * self.batch).configs[: self.batch]
        self.tell(batch)
        return batch


def test_neighbours_of_the_best_come_first():
    space = grid(9, 9, 9, 9)
    best, second = np.array([[4, 4, 4, 3], [0, 0, 8, 8]], np.int32)
    search = Search(space, LocalOptions(share=0.0), measured=np.array([second, best]))
    proposed = search.explorer.explore(None, search.visited, 16).configs
    assert (np.abs(proposed[:8] - best).sum(axis=1) == 1).all()
    assert (np.abs(proposed[8:12] - second).sum(axis=1) == 1).all()


def test_scores_are_ranks():
    search = Search(grid(9, 9, 9, 9), LocalOptions())
    candidates = search.explorer.explore(None, search.visited, 64)
    assert (np.diff(candidates.scores) < 0).all()
    assert candidates.scores.max() <= 1.0
    assert candidates.scores.min() > 0.0


@pytest.mark.parametrize("seed", range(5))
def test_it_climbs_a_single_hill_to_the_top(seed):
    space = grid(15, 15, 15)
    search = Search(space, LocalOptions(), seed=seed)
    for _ in range(30):
        search.round()
    assert quality(space, search.seen).max() == quality(space, np.array([[7, 7, 7]]))[0]
    # The hill has 21 steps at most; a random search would need half of 3375 measurements.
    assert len(search.seen) <= 31 * 8


def test_a_model_is_not_asked():
    def score(configs):
        raise AssertionError(f"{len(configs)} configurations to score")

    search = Search(grid(9, 9), LocalOptions())
    assert len(search.explorer.explore(score, search.visited, 8).configs) == 8


def test_where_guided_the_model_orders_the_neighbours_of_the_best():
    space = grid(9, 9, 9, 9)
    search = Search(space, LocalOptions(share=0.0, guided=True))
    free = LocalExplorer(LocalOptions(share=0.0), context_of(space, seed=0))
    free.observe(observe(space, search.seen))
    wanted = free.explore(None, search.visited, 32).configs
    candidates = search.explorer.explore(lambda c: -quality(space, c), search.visited, 32).configs
    assert (np.diff(quality(space, candidates)) >= 0).all()
    assert {tuple(row) for row in candidates.tolist()} == {tuple(row) for row in wanted.tolist()}


def test_climbs_leave_a_hill_whose_top_is_known():
    # The hill below holds everything that was measured; the higher one is five steps away.
    space = grid(20, 20)

    def height(configs):
        low = 1.0 - 0.1 * np.abs(configs - 3).sum(axis=1)
        return np.maximum(np.maximum(low, 3.0 - 0.5 * np.abs(configs - 15).sum(axis=1)), 0.01)

    optimal = 0
    for seed in range(10):
        explorer = LocalExplorer(LocalOptions(), context_of(space, seed=seed))
        visited = Visited(space)
        seen = np.array([[x, y] for x in range(1, 6) for y in range(1, 6)], np.int32)
        for _ in range(12):
            visited.add(seen)
            observations = observe(space, seen)
            observations.costs[:] = 1.0 / height(seen)
            explorer.observe(observations)
            seen = np.concatenate([seen, explorer.explore(None, visited, 64).configs[:8]])
        optimal += height(seen).max() == 3.0
    assert optimal >= 9


def test_batches_of_one_climb_too():
    space = grid(15, 15, 15)
    search = Search(space, LocalOptions(), batch=1)
    for _ in range(150):
        assert len(search.round()) == 1
    assert quality(space, search.seen).max() > quality(space, np.array([[6, 7, 6]]))[0]


configurations = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 0), st.integers(0, 4)), min_size=1, max_size=6
)


@given(configurations, st.integers(0, 2**32 - 1))
def test_neighbourhoods_are_those_of_the_space(rows, seed):
    space = grid(4, 1, 5, holds=lambda v: v["k0"] != v["k2"])
    configs = np.array(rows, np.int32)
    near = neighbours_of(space, configs, np.random.default_rng(seed))
    expected = {tuple(n) for row in configs for n in space.neighbours(row).tolist()}
    assert len(near) == len(expected)
    assert {tuple(n) for n in near.tolist()} == expected
    # Those of the first configuration come first.
    first = {tuple(n) for n in space.neighbours(configs[0]).tolist()}
    assert {tuple(n) for n in near[: len(first)].tolist()} == first


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_a_kick_moves_so_many_knobs_at_most(knobs, seed):
    space = grid(7, 1, 7, 7)
    config = np.array([3, 0, 3, 3], np.int32)
    moved = perturb(space, config, knobs, 50, np.random.default_rng(seed))
    assert len(moved)
    assert ((moved != config).sum(axis=1) <= knobs).all()
    assert len(space.distinct(moved)) == len(moved)
    if knobs == 1:
        assert {tuple(np.flatnonzero(row != config)) for row in moved} <= {(), (0,), (2,), (3,)}

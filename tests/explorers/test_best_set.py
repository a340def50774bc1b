"""The best set keeps what sorting everything would."""

import numpy as np
from chameleon_core.plugin_api import Visited
from chameleon_explorers._best_set import BestSet
from chameleon_testing._conformance_cases import grid
from hypothesis import given
from hypothesis import strategies as st


def space_of(knobs):
    return grid(*[100] * knobs)


offers = st.lists(
    st.lists(st.tuples(st.integers(0, 15), st.integers(-3, 3)), min_size=1, max_size=10),
    min_size=1,
    max_size=8,
)


# Two knobs fit an int64 identity, twelve do not.
@given(offers, st.integers(1, 6), st.sets(st.integers(0, 15), max_size=5), st.sampled_from([2, 12]))
def test_it_keeps_the_best_distinct_unvisited(rounds, capacity, visited_indices, knobs):
    space = space_of(knobs)
    # One score per configuration, as a cost model gives within a round.
    score_of = {index: score for offer in rounds for index, score in reversed(offer)}
    visited = Visited(space)
    config_of = lambda indices: np.array([[i, *([7] * (knobs - 1))] for i in indices], np.int32)  # noqa: E731
    if visited_indices:
        visited.add(config_of(sorted(visited_indices)))
    best = BestSet(space, visited, capacity)
    for offer in rounds:
        indices = [index for index, _ in offer]
        before = best.configs.tolist()
        changed = best.offer(config_of(indices), np.array([score_of[i] for i in indices], float))
        assert changed == (best.configs.tolist() != before)
    seen = {index for offer in rounds for index, _ in offer} - visited_indices
    expected = sorted((score_of[i] for i in seen), reverse=True)[:capacity]
    assert best.scores.tolist() == expected
    members = best.configs[:, 0].tolist()
    assert len(set(members)) == len(members)
    assert [score_of[i] for i in members] == expected
    assert not set(members) & visited_indices


def test_scores_that_are_no_numbers_are_never_kept():
    space = space_of(1)
    best = BestSet(space, Visited(space), 3)
    assert not best.offer(np.array([[1]], np.int32), np.array([np.nan]))
    assert best.configs.shape == (0, 1)

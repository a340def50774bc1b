"""AutoTVM's submodular pick, as published and as released."""

import numpy as np
import pytest
from chameleon_core.plugin_api import Candidates, Visited
from chameleon_samplers._options import DiversityOptions
from chameleon_samplers._picking import DiversitySampler
from chameleon_testing._conformance_cases import context_of, grid
from hypothesis import given
from hypothesis import strategies as st


def select(space, configs, scores, options, count):
    candidates = Candidates(configs=np.array(configs, np.int32), scores=np.array(scores, float))
    sampler = DiversitySampler(options, context_of(space))
    return sampler.select(candidates, Visited(space), count).tolist()


def test_without_diversity_the_best_scores_are_taken():
    space = grid(5, 5)
    configs = [[0, 0], [0, 1], [1, 1], [4, 4]]
    chosen = select(space, configs, [0.9, 0.8, 0.7, 0.1], DiversityOptions(alpha=0.0), 3)
    assert chosen == configs[:3]


def test_a_new_knob_value_is_worth_alpha():
    space = grid(5, 5)
    configs = [[0, 0], [0, 1], [4, 4]]
    scores = [0.9, 0.8, 0.5]
    # After the first, the second brings one new value and the third two.
    assert select(space, configs, scores, DiversityOptions(alpha=0.2), 2) == [[0, 0], [0, 1]]
    assert select(space, configs, scores, DiversityOptions(alpha=0.4), 2) == [[0, 0], [4, 4]]


def test_released_code_counts_values_alone_among_the_best():
    space = grid(9, 9)
    configs = [[0, 0], [0, 1], [1, 0], [2, 2], [8, 8]]
    scores = [0.9, 0.8, 0.7, 0.6, 0.1]
    # Two batches of two: the last candidate is never looked at, whatever it would bring.
    assert select(space, configs, scores, DiversityOptions.release(), 2) == [[0, 0], [2, 2]]


def test_released_code_looks_at_two_batches_and_at_no_score():
    space = grid(9, 9)
    configs = [[0, 0], [0, 1], [0, 2], [1, 3], [8, 8]]
    scores = [900.0, 800.0, 700.0, 600.0, 500.0]
    assert select(space, configs, scores, DiversityOptions.release(), 2) == [[0, 0], [1, 3]]
    # The fifth candidate would bring more than the second.
    one_new = [[0, 0], [0, 1], [0, 2], [0, 3], [8, 8]]
    assert select(space, one_new, scores, DiversityOptions.release(), 2) == [[0, 0], [0, 1]]


@pytest.mark.parametrize("options", [DiversityOptions(), DiversityOptions.release()])
def test_the_space_fills_a_short_plan(options):
    chosen = select(grid(9, 9), [[1, 1], [2, 2]], [0.5, 0.4], options, 6)
    assert chosen[:2] == [[1, 1], [2, 2]]
    assert len({tuple(row) for row in chosen}) == 6


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 4)),
        min_size=1,
        max_size=20,
        unique=True,
    ),
    alpha=st.sampled_from([0.0, 0.1, 1.0]),
    data=st.data(),
)
def test_every_pick_gains_most(rows, alpha, data):
    space = grid(4, 3, 5)
    scores = data.draw(
        st.lists(st.integers(0, 9).map(float), min_size=len(rows), max_size=len(rows))
    )
    count = data.draw(st.integers(1, len(rows)))
    chosen = select(space, rows, scores, DiversityOptions(alpha=alpha), count)
    score_of = {tuple(row): score for row, score in zip(rows, scores, strict=True)}
    batch, left = [], set(score_of)

    def gain(row):
        new = sum(all(row[k] != other[k] for other in batch) for k in range(3))
        return score_of[row] + alpha * new

    for picked in map(tuple, chosen):
        assert gain(picked) == pytest.approx(max(map(gain, left)))
        batch.append(picked)
        left.remove(picked)
    assert len(batch) == count

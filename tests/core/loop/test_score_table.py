"""A table of scores answers as the model would, and asks it once."""

import numpy as np
from chameleon_core._loop.round.stages import WatchedScores, tabulated
from chameleon_core.plugin_api import Visited
from chameleon_testing._conformance_cases import grid
from hypothesis import given
from hypothesis import strategies as st


class Model:
    """Scores by position, and remembers how many rows it was asked about."""

    def __init__(self):
        self.asked = []

    def __call__(self, configs):
        self.asked.append(len(configs))
        return configs @ (10.0 ** np.arange(configs.shape[1]))


@given(st.data())
def test_it_answers_as_the_model_does(data):
    choices = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    rows = st.lists(
        st.tuples(*[st.integers(0, count - 1) for count in choices]), min_size=1, max_size=20
    )
    only = data.draw(st.none() | rows.map(lambda listed: np.array(listed, np.int32)))
    space, model = grid(*choices, only=only), Model()
    score = tabulated(model, space)
    for asked in data.draw(st.lists(rows, min_size=1, max_size=4)):
        configs = np.array(asked, np.int32)
        assert score(configs).tolist() == Model()(configs).tolist()
        assert score(configs[:0]).shape == (0,)


def test_the_model_is_asked_once():
    space, model = grid(20, 20), Model()
    score = tabulated(model, space)
    assert model.asked == []  # not before anybody wants a score
    rng = np.random.default_rng(0)
    for _ in range(5):
        score(space.sample(30, rng))
    assert model.asked == [400]


def test_what_it_answers_may_be_changed():
    space, model = grid(4), Model()
    score = tabulated(model, space)
    configs = space.all_legal
    score(configs)[:] = -1.0
    assert score(configs).tolist() == [0.0, 1.0, 2.0, 3.0]


def test_what_is_not_in_the_table_is_asked_about():
    only = np.array([[0, 0], [1, 1]], np.int32)
    space, model = grid(3, 3, only=only), Model()
    score = tabulated(model, space)
    assert score(np.array([[1, 1], [2, 0], [2, 2]], np.int32)).tolist() == [11.0, 2.0, 22.0]
    assert model.asked == [2, 2]


def test_large_spaces_are_left_to_the_model():
    model = Model()
    assert tabulated(model, grid(*[100] * 4)) is model
    assert tabulated(model, grid(300, 300)) is model


def rows(*values):
    return np.array(values, np.int32).reshape(-1, 1)


def test_the_step_of_the_best_new_configuration_is_found():
    visited = Visited(grid(100))
    visited.add(rows(99))
    watch = WatchedScores(lambda configs: configs[:, 0].astype(float), visited)
    # Two chains, five steps; 99 scores highest of all and was measured before.
    for step in ([1, 99], [5, 2], [7, 99], [6, 4], [3, 7]):
        watch(rows(*step))
    assert watch.best == 7.0
    assert watch.converged(5) == 3


def test_a_walk_that_scores_nothing_converges_at_once():
    watch = WatchedScores(lambda configs: configs[:, 0].astype(float), Visited(grid(2)))
    assert watch.converged(9) == 0

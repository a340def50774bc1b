"""Average recall, and the number of trees it decides."""

import numpy as np
import pytest
from chameleon_cost_models._options import XGBoostOptions
from chameleon_cost_models._xgboost_model import XGBoostModel, average_recall
from chameleon_testing._conformance_cases import context_of, observe, spaces
from hypothesis import given
from hypothesis import strategies as st

VALUES = st.lists(st.floats(-1, 1), min_size=1, max_size=30)


@given(VALUES, st.integers(1, 40))
def test_the_truth_recalls_everything(values, top):
    assert average_recall(np.array(values), np.array(values), top) == pytest.approx(1.0)


@given(st.permutations(range(8)), st.permutations(range(8)), st.integers(1, 8))
def test_it_is_the_mean_share_of_the_best_found(one, other, top):
    predicted, truth = np.array(one, float), np.array(other, float)
    shares = [
        len(set(np.argsort(-predicted)[:k]) & set(np.argsort(-truth)[:k])) / k
        for k in range(1, top + 1)
    ]
    assert average_recall(predicted, truth, top) == pytest.approx(np.mean(shares))


def test_the_wrong_way_round_recalls_nothing_at_the_top():
    truth = np.arange(20.0)
    assert average_recall(-truth, truth, 10) == 0.0


def test_patience_decides_the_number_of_trees():
    space = spaces()["tiled"]
    observations = observe(space, space.sample(60, np.random.default_rng(0)))
    grown = {}
    for patience in (1, 20):
        model = XGBoostModel(
            XGBoostOptions(rounds=1000, early_stopping=patience), context_of(space)
        )
        model.fit(observations)
        grown[patience] = model._trees
    assert 1 <= grown[1] <= grown[20] < 1000


def test_the_trees_of_a_stopped_model_are_those_of_a_short_one():
    space = spaces()["tiled"]
    configs = space.sample(60, np.random.default_rng(0))
    stopped = XGBoostModel(XGBoostOptions(rounds=1000, early_stopping=5), context_of(space))
    stopped.fit(observe(space, configs))
    short = XGBoostModel(XGBoostOptions(rounds=stopped._trees), context_of(space))
    short.fit(observe(space, configs))
    assert np.allclose(stopped.predict(configs), short.predict(configs), atol=1e-6)

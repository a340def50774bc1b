"""The xgboost cost model: what it learns, when it says that it knows nothing."""

import numpy as np
import pytest
from chameleon_cost_models.options import XGBoostOptions
from chameleon_cost_models.xgboost_model import XGBoostModel
from chameleon_testing.conformance_cases import context_of, observe, spaces


def fitted(space, observations, *, seed=1, **options):
    model = XGBoostModel(XGBoostOptions(**options), context_of(space, seed=seed))
    model.fit(observations)
    return model


@pytest.fixture
def space():
    return spaces()["tiled"]


def test_it_predicts_relative_throughput(space):
    configs = space.sample(200, np.random.default_rng(0))
    observations = observe(space, configs)
    scores = fitted(space, observations).predict(configs)
    assert np.abs(scores - observations.relative_throughput).max() < 0.1

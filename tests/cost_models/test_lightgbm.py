"""The LightGBM cost model: what it learns."""

import numpy as np
import pytest
from chameleon_cost_models.lightgbm_model import LightGBMModel
from chameleon_cost_models.options import LightGBMOptions
from chameleon_testing.conformance_cases import context_of, observe, quality, spaces


def fitted(space, observations, **options):
    model = LightGBMModel(LightGBMOptions(**options), context_of(space))
    model.fit(observations)
    return model


@pytest.fixture
def space():
    return spaces()["tiled"]


def test_it_orders_configurations_it_has_not_seen(space):
    configs = space.sample(300, np.random.default_rng(0))
    scores = fitted(space, observe(space, configs[:150])).predict(configs[150:])
    ranks = [np.argsort(np.argsort(v)) for v in (scores, quality(space, configs[150:]))]
    assert np.corrcoef(ranks)[0, 1] > 0.7


def test_failures_score_lower_than_successes(space):
    configs = space.sample(200, np.random.default_rng(0))
    failing = configs[:, -1] == 1
    model = fitted(space, observe(space, configs[:100], failing=failing[:100]))
    scores = model.predict(configs[100:])
    assert scores[failing[100:]].max() < scores[~failing[100:]].min()


def test_more_leaves_fit_closer(space):
    configs = space.sample(200, np.random.default_rng(0))
    observations = observe(space, configs)
    errors = [
        np.abs(
            fitted(space, observations, num_leaves=leaves, rounds=20).predict(configs)
            - observations.relative_throughput
        ).mean()
        for leaves in (2, 16)
    ]
    assert errors[1] < errors[0]


@pytest.mark.parametrize(
    "wrong",
    [{"num_leaves": 1}, {"learning_rate": 1.5}, {"min_data_in_leaf": 0}, {"rounds": 0}],
)
def test_wrong_options_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LightGBMOptions(**wrong)

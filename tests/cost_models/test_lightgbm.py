"""The LightGBM cost model: what it learns."""

import numpy as np
import pytest
from chameleon_cost_models.lightgbm_model import LightGBMModel
from chameleon_cost_models.options import LightGBMOptions
from chameleon_testing.conformance_cases import context_of, observe, spaces


def fitted(space, observations, **options):
    model = LightGBMModel(LightGBMOptions(**options), context_of(space))
    model.fit(observations)
    return model


@pytest.fixture
def space():
    return spaces()["tiled"]


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

"""The xgboost cost model: what it learns, when it says that it knows nothing."""

import numpy as np
import pytest
from chameleon_core.space import Choice, DesignSpace, FeatureBlock
from chameleon_cost_models.options import XGBoostOptions
from chameleon_cost_models.xgboost_model import XGBoostModel
from chameleon_testing.conformance_cases import context_of, observe, quality, spaces


def fitted(space, observations, *, seed=1, **options):
    model = XGBoostModel(XGBoostOptions(**options), context_of(space, seed=seed))
    model.fit(observations)
    return model


def rank_correlation(one, other):
    ranks = [np.argsort(np.argsort(values)) for values in (one, other)]
    return np.corrcoef(ranks)[0, 1]


@pytest.fixture
def space():
    return spaces()["tiled"]


@pytest.mark.parametrize("objective", ["reg", "rank"])
def test_it_orders_configurations_it_has_not_seen(space, objective):
    configs = space.sample(300, np.random.default_rng(0))
    model = fitted(space, observe(space, configs[:150]), objective=objective)
    assert rank_correlation(model.predict(configs[150:]), quality(space, configs[150:])) > 0.7


def test_failures_score_lower_than_successes(space):
    configs = space.sample(200, np.random.default_rng(0))
    failing = configs[:, -1] == 1
    model = fitted(space, observe(space, configs[:100], failing=failing[:100]))
    scores = model.predict(configs[100:])
    assert scores[failing[100:]].max() < scores[~failing[100:]].min()


def test_it_predicts_relative_throughput(space):
    configs = space.sample(200, np.random.default_rng(0))
    observations = observe(space, configs)
    scores = fitted(space, observations).predict(configs)
    assert np.abs(scores - observations.relative_throughput).max() < 0.1


@pytest.mark.parametrize("count", [0, 1, 20])
def test_it_is_not_trained_by_failures_alone(space, count):
    configs = space.sample(count, np.random.default_rng(0))
    model = fitted(space, observe(space, configs, failing=np.ones(count, bool)))
    assert not model.trained
    assert model.predict(configs).tolist() == [0.0] * count


def test_one_success_among_failures_trains_it(space):
    configs = space.sample(20, np.random.default_rng(0))
    model = fitted(space, observe(space, configs, failing=np.arange(20) > 0))
    assert model.trained
    assert np.isfinite(model.predict(configs)).all()


def test_features_that_are_not_finite_are_missing_values():
    broken = np.array([np.inf, -np.inf, np.nan, 1.0])
    space = DesignSpace(
        [Choice(name="k", options=tuple(range(40)))],
        features=FeatureBlock(
            names=("odd",), compute=lambda v: broken[v["k"].astype(int) % 4][:, None]
        ),
    )
    configs = space.sample(40, np.random.default_rng(0))
    model = fitted(space, observe(space, configs))
    assert np.isfinite(model.predict(configs)).all()


def test_two_models_of_one_seed_agree_and_refitting_forgets(space):
    configs = space.sample(100, np.random.default_rng(0))
    once = fitted(space, observe(space, configs))
    again = fitted(space, observe(space, configs[:30]))
    again.fit(observe(space, configs))
    assert (once.predict(configs) == again.predict(configs)).all()


def test_no_configuration_no_score(space):
    model = fitted(space, observe(space, space.sample(30, np.random.default_rng(0))))
    assert model.predict(np.empty((0, len(space.knobs)), np.int32)).shape == (0,)


@pytest.mark.parametrize(
    "wrong",
    [
        {"objective": "mse"},
        {"max_depth": 0},
        {"learning_rate": 0.0},
        {"rounds": 0},
        {"gamma": -1.0},
    ],
)
def test_wrong_options_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        XGBoostOptions(**wrong)

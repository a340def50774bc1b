"""What every cost model does with odd measurements, features, sizes and options."""

import attrs
import numpy as np
import pytest
from chameleon_core.plugin_api import Choice, DesignSpace
from chameleon_cost_models._options import (
    AlternatingOptions,
    EnsembleOptions,
    GaussianProcessOptions,
    LightGBMOptions,
    MixedOptions,
    TransferOptions,
    XGBoostOptions,
)
from chameleon_testing._conformance_cases import context_of, observe, quality, spaces
from chameleon_testing.conformance import check_cost_model
from hypothesis import given, settings
from hypothesis import strategies as st
from stages import maker

MODELS = {
    "xgboost": maker(XGBoostOptions(rounds=20)),
    "xgboost, rank": maker(XGBoostOptions(objective="rank")),
    "xgboost, stopping": maker(XGBoostOptions(early_stopping=5)),
    "lightgbm": maker(LightGBMOptions(rounds=20)),
    "ensemble": maker(EnsembleOptions(rounds=10)),
    "ensemble, ei": maker(EnsembleOptions(rounds=10, acquisition="ei")),
}

every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())

ODD = np.array([np.inf, -np.inf, np.nan, 1.0, 1e30, -1e-30])


def odd_space():
    """A space with an analytical feature that is mostly not a number."""
    return DesignSpace(
        [Choice(name="k", options=tuple(range(40)))],
        features=DesignSpace.FeatureBlock(
            names=("odd",), compute=lambda v: ODD[v["k"].astype(int) % len(ODD)][:, None]
        ),
    )


def drawn(count):
    """A space and configurations of it."""
    space = spaces()["tiled"]
    return space, space.sample(count, np.random.default_rng(0))


def fitted(make, space, observations, seed=1):
    model = make(context_of(space, seed=seed))
    model.fit(observations)
    return model


@pytest.mark.full
@pytest.mark.parametrize(
    "options",
    [
        *(XGBoostOptions(objective=objective) for objective in ("reg", "rank")),
        XGBoostOptions(early_stopping=5),
        *(LightGBMOptions(extra_trees=extra) for extra in (False, True)),
        *(EnsembleOptions(acquisition=acquisition) for acquisition in ("mean", "ucb", "ei")),
        *(MixedOptions(), AlternatingOptions(), GaussianProcessOptions()),
    ],
)
def test_all_conform(options):
    check_cost_model(maker(options))


@every_model
def test_features_that_are_not_finite_are_missing_values(make):
    space = odd_space()
    configs = space.sample(40, np.random.default_rng(0))
    model = fitted(make, space, observe(space, configs))
    assert model.trained
    assert np.isfinite(model.predict(configs)).all()


@every_model
@given(
    costs=st.lists(
        st.sampled_from([np.inf, np.nan, 0.0, 1e-9, 1e-3, 2e-3, 1e6]), min_size=0, max_size=12
    ),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=15, deadline=None)
def test_any_costs_give_finite_scores_and_the_same_twice(make, costs, seed):
    space = spaces()["tiled"]
    configs = space.sample(len(costs), np.random.default_rng(seed))
    observations = attrs.evolve(observe(space, configs), costs=np.array(costs, float))
    once, again = (fitted(make, space, observations, seed) for _ in range(2))
    unseen = space.sample(30, np.random.default_rng(seed + 1))
    scores = once.predict(unseen)
    assert scores.shape == (30,)
    assert scores.dtype == np.float64
    assert np.isfinite(scores).all()
    assert (scores == again.predict(unseen)).all()


@every_model
@pytest.mark.parametrize("count", [0, 1, 20])
def test_nothing_is_learnt_where_all_is_alike(make, count):
    space, configs = drawn(count)
    alike = attrs.evolve(observe(space, configs), costs=np.full(count, 1e-3))
    for observations in (alike, observe(space, configs, failing=np.ones(count, bool))):
        model = fitted(make, space, observations)
        assert not model.trained
        assert model.predict(configs).tolist() == [0.0] * count


@every_model
@pytest.mark.parametrize("count", [2, 20])
def test_one_success_among_failures_is_enough_to_start(make, count):
    space, configs = drawn(count)
    model = fitted(make, space, observe(space, configs, failing=np.arange(count) != 1))
    assert model.trained
    assert np.isfinite(model.predict(configs)).all()


@every_model
def test_refitting_forgets(make):
    space, configs = drawn(100)
    once = fitted(make, space, observe(space, configs))
    again = fitted(make, space, observe(space, configs[:30]))
    again.fit(observe(space, configs))
    assert (once.predict(configs) == again.predict(configs)).all()


@every_model
def test_unknown_again_when_everything_turns_out_alike(make):
    space, configs = drawn(20)
    model = fitted(make, space, observe(space, configs))
    model.fit(observe(space, configs, failing=np.ones(20, bool)))
    assert not model.trained


@every_model
def test_configurations_it_has_not_seen_are_ordered(make):
    if make is MODELS["ensemble, ei"]:
        pytest.skip("its scores are expected gains")
    space, configs = drawn(300)
    scores = fitted(make, space, observe(space, configs[:150])).predict(configs[150:])
    ranks = [np.argsort(np.argsort(v)) for v in (scores, quality(space, configs[150:]))]
    assert np.corrcoef(ranks)[0, 1] > 0.7


@every_model
def test_failures_score_lower_than_successes(make):
    if make is MODELS["xgboost, rank"]:
        pytest.skip("its scores order successes alone")
    space, configs = drawn(200)
    failing = configs[:, -1] == 1
    model = fitted(make, space, observe(space, configs[:100], failing=failing[:100]))
    scores = model.predict(configs[100:])
    assert scores[failing[100:]].max() < scores[~failing[100:]].min()


def test_xgboost_predicts_relative_throughput():
    space, configs = drawn(200)
    observations = observe(space, configs)
    scores = fitted(maker(XGBoostOptions()), space, observations).predict(observations.configs)
    assert np.abs(scores - observations.relative_throughput).max() < 0.1


def test_more_leaves_of_lightgbm_fit_closer():
    space, configs = drawn(200)
    observations = observe(space, configs)
    coarse, fine = (
        fitted(maker(LightGBMOptions(num_leaves=leaves, rounds=20)), space, observations)
        for leaves in (2, 16)
    )
    errors = [
        np.abs(model.predict(observations.configs) - observations.relative_throughput).mean()
        for model in (coarse, fine)
    ]
    assert errors[1] < errors[0]


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (XGBoostOptions, {"objective": "mse"}),
        (XGBoostOptions, {"max_depth": 0}),
        (XGBoostOptions, {"learning_rate": 0.0}),
        (XGBoostOptions, {"rounds": 0}),
        (XGBoostOptions, {"gamma": -1.0}),
        (LightGBMOptions, {"num_leaves": 1}),
        (LightGBMOptions, {"learning_rate": 1.5}),
        (LightGBMOptions, {"min_data_in_leaf": 0}),
        (LightGBMOptions, {"rounds": 0}),
        (EnsembleOptions, {"acquisition": "pi"}),
        (EnsembleOptions, {"kappa": -1.0}),
        (EnsembleOptions, {"members": 1}),
        (EnsembleOptions, {"feature_fraction": 0.0}),
        (EnsembleOptions, {"l2": -1.0}),
        (EnsembleOptions, {"rounds": 0}),
        (TransferOptions, {"records": 0}),
        (TransferOptions, {"half_life": 0.0}),
    ],
)
def test_wrong_options_are_refused(options, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        options(**wrong)

"""The ensemble: members that agree where something was measured, and what is made of it."""

import numpy as np
import pytest
from chameleon_cost_models._ensemble import ACQUISITIONS, Ensemble
from chameleon_cost_models._options import EnsembleOptions
from chameleon_testing._conformance_cases import context_of, observe, spaces


def fitted(space, observations, *, seed=1, **options):
    model = Ensemble(EnsembleOptions(**options), context_of(space, seed=seed))
    model.fit(observations)
    return model


@pytest.fixture
def space():
    return spaces()["tiled"]


@pytest.fixture
def configs(space):
    return space.sample(400, np.random.default_rng(0))


def test_members_disagree_more_about_what_was_not_measured(space, configs):
    model = fitted(space, observe(space, configs[:60]))
    _, known = model.moments(configs[:60])
    _, unknown = model.moments(configs[60:])
    assert unknown.mean() > 2 * known.mean() > 0


def test_disagreement_shrinks_with_measurements(space, configs):
    few, many = (fitted(space, observe(space, configs[:count])) for count in (20, 300))
    assert many.moments(configs[300:])[1].mean() < few.moments(configs[300:])[1].mean()


def test_every_member_has_its_own_opinion(space, configs):
    members = fitted(space, observe(space, configs[:100]), members=5).members(configs[100:])
    assert members.shape == (300, 5)
    assert (np.ptp(members, axis=0) > 0).all()
    assert len(np.unique(members.round(6), axis=1).T) == 5


def test_its_mean_predicts_relative_throughput(space, configs):
    observations = observe(space, configs)
    mean, _ = fitted(space, observations).moments(configs)
    assert np.abs(mean - observations.relative_throughput).mean() < 0.02


def test_untrained_members_agree_on_nothing(space, configs):
    model = Ensemble(EnsembleOptions(members=3), context_of(space))
    assert (model.members(configs) == np.zeros((400, 3))).all()
    mean, std = model.moments(configs[:0])
    assert mean.shape == std.shape == (0,)


def test_ucb_is_the_mean_and_kappa_times_the_deviation(space, configs):
    model = fitted(space, observe(space, configs[:100]), acquisition="ucb", kappa=1.5)
    mean, std = model.moments(configs)
    assert np.allclose(model.predict(configs), mean + 1.5 * std)


def test_without_kappa_ucb_is_the_mean(space, configs):
    observations = observe(space, configs[:100])
    greedy = fitted(space, observations, acquisition="mean")
    assert np.allclose(
        greedy.predict(configs), fitted(space, observations, kappa=0.0).predict(configs)
    )


def test_ei_is_the_expected_gain_over_the_best():
    rng = np.random.default_rng(0)
    mean, std, best = np.array([0.2, 0.9, 1.2]), np.array([0.3, 0.1, 0.05]), 1.0
    gain = np.maximum(rng.normal(mean, std, (400_000, 3)) - best, 0).mean(axis=0)
    assert np.allclose(ACQUISITIONS["ei"](mean, std, best, 0.0), gain, atol=1e-3)


def test_ei_of_the_hopeless_and_the_certain_is_finite_and_not_negative():
    mean, std = np.array([-50.0, 0.5, 2.0]), np.array([1e-3, 0.0, 0.0])
    worth = ACQUISITIONS["ei"](mean, std, 1.0, 0.0)
    assert np.allclose(worth, [0.0, 0.0, 1.0])
    assert (worth >= 0).all()


def test_another_seed_draws_other_members(space, configs):
    observations = observe(space, configs[:100])
    first, other = (fitted(space, observations, seed=seed) for seed in (1, 2))
    assert not np.allclose(first.members(configs), other.members(configs))

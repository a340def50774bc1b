"""The Gaussian process: the contract, what it is sure of, and rounds that tell most together."""

import attrs
import numpy as np
import pytest
from chameleon_core.plugin_api import Choice, DesignSpace
from chameleon_cost_models import _gaussian_process as gaussian_process
from chameleon_cost_models._gaussian_process import GaussianProcess, Posterior, fit_parameters
from chameleon_cost_models._options import GaussianProcessOptions
from chameleon_testing._conformance_cases import context_of, grid, observe
from hypothesis import given, settings
from hypothesis import strategies as st

SPACE = grid(*[16] * 3)
PLACES = np.array([knob for knob in np.ndindex(16, 16, 16)], np.int32)  # noqa: C416 - tuples


def _observed(configs, costs, space=SPACE):
    costs = np.asarray(costs, float)
    observations = observe(space, np.asarray(configs, np.int32), failing=~np.isfinite(costs))
    return attrs.evolve(observations, costs=costs, build_seconds=np.zeros(len(costs)))


def _bowl(configs):
    """Seconds with one minimum, along which the third knob does nothing."""
    return 1e-3 * (1.0 + ((configs[:, 0] - 9) / 8) ** 2 + ((configs[:, 1] - 3) / 8) ** 2)


def _fitted(count=60, costs=_bowl, **options):
    model = GaussianProcess(GaussianProcessOptions(**options), context_of(SPACE))
    configs = PLACES[np.random.default_rng(0).permutation(len(PLACES))[:count]]
    model.fit(_observed(configs, costs(configs)))
    return model, configs


def test_it_finds_a_smooth_minimum_from_few_measurements():
    model, _ = _fitted(kappa=0.0)
    best = PLACES[np.argmax(model.predict(PLACES))]
    assert abs(best[0] - 9) <= 1
    assert abs(best[1] - 3) <= 1


def test_the_fit_finds_what_made_the_values():
    """With a wrong gradient it would end early."""
    rng = np.random.default_rng(3)
    points = rng.random((150, 3))
    values = np.sin(9.0 * points[:, 0]) + 0.1 * rng.standard_normal(150)
    parameters = fit_parameters(points, (values - values.mean()) / values.std())
    assert parameters.lengths[0] < 0.6
    assert (parameters.lengths[1:] > 1.5).all()
    assert 0.005 < parameters.noise < 0.08


def test_it_is_surer_where_it_measured():
    rng = np.random.default_rng(1)
    points, far = 0.5 * rng.random((40, 2)), 0.9 + 0.1 * rng.random((10, 2))
    values = rng.standard_normal(40)
    posterior = Posterior(points, values, fit_parameters(points, values))
    assert posterior.moments(points)[1].max() < posterior.moments(far)[1].min()


def test_its_moments_and_covariances_agree():
    points = np.random.default_rng(2).random((20, 3))
    values = np.random.default_rng(3).standard_normal(20)
    posterior = Posterior(points, values, fit_parameters(points, values))
    other = np.random.default_rng(4).random((9, 3))
    covariance = posterior.covariance(other)
    assert np.allclose(np.sqrt(np.diagonal(covariance)), posterior.moments(other)[1])
    assert np.allclose(covariance, covariance.T)


def test_failures_count_as_slow():
    def costs(configs):
        return np.where(configs[:, 1] < 4, np.inf, _bowl(configs))

    model, _ = _fitted(costs=costs, kappa=0.0)
    scores = model.predict(PLACES)
    assert scores[PLACES[:, 1] < 3].mean() < scores[PLACES[:, 1] > 4].mean()


def test_a_round_is_not_the_same_four_times():
    model, _ = _fitted(count=12)
    order = np.argsort(-model.predict(PLACES), kind="stable")[:200]
    together = model.select_batch(PLACES[order], 4)
    assert together[0] == 0
    assert len(set(together.tolist())) == 4
    # The third knob does nothing, so that the best scores are those of neighbours along it.
    spread = [len(np.unique(PLACES[order[rows]][:, :2], axis=0)) for rows in (together, range(4))]
    assert spread[0] > spread[1]


def test_the_uncertainty_left_is_that_of_having_measured():
    """What one choice of a round leaves unknown is what measuring it would leave."""
    rng = np.random.default_rng(5)
    points, other = rng.random((20, 3)), rng.random((30, 3))
    parameters = fit_parameters(points, rng.standard_normal(20))
    before = Posterior(points, np.zeros(20), parameters)
    after = Posterior(np.concatenate([points, other[:1]]), np.zeros(21), parameters)
    assert np.allclose(before.conditioned(before.covariance(other), 0), after.covariance(other))


@pytest.mark.parametrize("count", [0, 1])
def test_it_says_nothing_of_too_few(count):
    model, configs = _fitted(count=count)
    assert not model.trained
    assert model.predict(configs).tolist() == [0.0] * count
    assert model.select_batch(PLACES[:5], 2) is None


def test_a_fit_depends_on_the_measurements_alone():
    once, configs = _fitted(count=90)
    again, _ = _fitted(count=30)
    for count in (50, 90):
        again.fit(_observed(configs[:count], _bowl(configs[:count])))
    assert (once.predict(PLACES) == again.predict(PLACES)).all()


def test_it_learns_from_the_fastest_and_the_latest_of_many():
    model, configs = _fitted(count=120, measurements=40)
    rows = model._rows(_bowl(configs))
    assert len(rows) <= 40
    assert set(range(100, 120)) <= set(rows.tolist())
    assert int(np.argmin(_bowl(configs))) in rows
    assert np.isfinite(model.predict(PLACES)).all()


def test_where_next_to_nothing_succeeds_it_still_learns(monkeypatch):
    monkeypatch.setattr(gaussian_process, "_PARAMETER_ROWS", 128)
    costs = np.full(600, np.inf)
    costs[[500, 599]] = 1e-3, 2e-3
    model = GaussianProcess(GaussianProcessOptions(), context_of(SPACE))
    model.fit(_observed(PLACES[:600], costs))
    assert model.trained
    assert np.argmax(model.predict(PLACES[:600])) == 500


@given(
    costs=st.lists(
        st.sampled_from([np.inf, np.nan, 0.0, 1e-9, 1e-3, 2e-3, 1e6]), min_size=0, max_size=20
    ),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=40, deadline=None)
def test_any_costs_give_finite_scores_and_distinct_rows(costs, seed):
    configs = PLACES[np.random.default_rng(seed).permutation(len(PLACES))[: len(costs)]]
    model = GaussianProcess(GaussianProcessOptions(), context_of(SPACE))
    model.fit(_observed(configs, costs))
    assert np.isfinite(model.predict(PLACES[:50])).all()
    together = model.select_batch(PLACES[:50], 8)
    assert (together is None) == (not model.trained)
    if together is not None:
        assert len(np.unique(together)) == 8


def test_configurations_that_no_feature_tells_apart_are_no_trouble():
    space = DesignSpace([Choice(name="k", options=(7,)), Choice(name="l", options=("a", "b"))])
    model = GaussianProcess(GaussianProcessOptions(), context_of(space))
    observations = _observed([[0, 0], [0, 1]], [1e-3, 2e-3], space)
    model.fit(observations)
    model.fit(attrs.evolve(observations, costs=np.array([1e-3, 1e-3])))
    assert not model.trained
    model.fit(_observed([[0, 0], [0, 0], [0, 1]], [1e-3, 2e-3, 3e-3], space))
    assert np.isfinite(model.predict(space.all_legal)).all()


def test_scipy_is_loaded_when_something_is_fitted(run_python):
    """`chameleon validate` imports every stage, and computes nothing with it."""
    program = (
        "import sys\n"
        "import chameleon_cost_models._ensemble, chameleon_cost_models._gaussian_process\n"
        "print(*{'scipy.linalg', 'scipy.optimize', 'scipy.special'} & set(sys.modules))"
    )
    assert run_python(program) == "\n"

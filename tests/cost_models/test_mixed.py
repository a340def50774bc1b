"""The mixed ensemble: the contract, the two scales, and validity apart from speed."""

import attrs
import numpy as np
import pytest
from chameleon_cost_models._mixed import MixedEnsemble
from chameleon_cost_models._options import MixedOptions
from chameleon_testing._conformance_cases import context_of, grid, observe

SPACE = grid(*[16] * 2)


def _observed(costs, build_seconds=None, run_seconds=None):
    """Observations of all of the space's 256 configurations; infinite costs are failures."""
    nothing = np.zeros(len(costs))
    return attrs.evolve(
        observe(SPACE, SPACE.all_legal, failing=~np.isfinite(costs)),
        costs=costs,
        build_seconds=nothing if build_seconds is None else build_seconds,
        run_seconds=nothing if run_seconds is None else run_seconds,
    )


def _fitted(costs, **options):
    model = MixedEnsemble(MixedOptions(**options), context_of(SPACE))
    model.fit(_observed(costs))
    return model


def test_it_orders_what_is_slow_as_well_as_what_is_fast():
    # Two orders of magnitude: throughput alone hardly tells the slow half apart.
    costs = 1e-3 * 100.0 ** (SPACE.all_legal[:, 0] / 15)
    scores = _fitted(costs, kappa=0.0).predict(SPACE.all_legal)
    slow = SPACE.all_legal[:, 0] >= 8
    assert np.corrcoef(scores[slow], -np.log(costs[slow]))[0, 1] > 0.95


def test_what_fails_is_scored_below_what_is_slow():
    costs = np.where(SPACE.all_legal[:, 1] < 4, np.inf, 1e-3 * (1 + SPACE.all_legal[:, 0]))
    scores = _fitted(costs).predict(SPACE.all_legal)
    assert scores[np.isinf(costs)].max() < scores[np.isfinite(costs)].min()


def test_uncertainty_raises_a_score():
    costs = 1e-3 * (1 + np.random.default_rng(0).random(256))
    low, high = (_fitted(costs, kappa=kappa).predict(SPACE.all_legal) for kappa in (0.0, 2.0))
    assert (high > low).all()


@pytest.mark.parametrize("costs", [np.full(256, np.inf), np.full(256, 1e-3)])
def test_where_nothing_differs_it_stays_untrained(costs):
    assert not _fitted(costs).trained


def _priced(build_seconds, run_seconds=None, price=1.0):
    """What the scores of equally fast configurations lose by what they take to measure."""
    costs = 1e-3 * (1.0 + np.random.default_rng(1).random(256))
    scores = []
    for charged in (0.0, price):
        model = MixedEnsemble(MixedOptions(price=charged), context_of(SPACE))
        model.fit(_observed(costs, build_seconds, run_seconds))
        scores.append(model.predict(SPACE.all_legal))
    return scores[0] - scores[1]


def test_what_takes_twice_as_long_loses_the_price():
    slow = SPACE.all_legal[:, 1] >= 8
    lost = _priced(np.where(slow, 4.0, 1.0), price=0.5)
    assert lost[slow].mean() - lost[~slow].mean() == pytest.approx(2 * 0.5, rel=0.05)


def test_building_that_hardly_counts_beside_running_costs_nothing():
    build = np.where(SPACE.all_legal[:, 1] >= 8, 0.04, 0.01)
    assert not _priced(build, np.full(256, 2.0)).any()


@pytest.mark.parametrize("seconds", [0.0, 3.0])
def test_where_all_take_as_long_the_price_changes_nothing(seconds):
    assert not _priced(np.full(256, seconds)).any()


def test_measurements_that_took_no_time_say_nothing_of_time():
    """They were found in a store or a cache."""
    build = np.zeros(256)
    build[:2] = (1.0, 1.0)
    assert not _priced(build).any()

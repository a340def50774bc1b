"""The mixed ensemble: the contract, the two scales, and validity apart from speed."""

import numpy as np
import pytest
from chameleon_core.measurement import FailureKind
from chameleon_core.space import Choice, DesignSpace
from chameleon_core.stages import Observations
from chameleon_core.testing.conformance import check_cost_model
from chameleon_core.testing.conformance_cases import context_of
from chameleon_cost_models.mixed import MixedEnsemble
from chameleon_cost_models.mixed_options import MixedOptions

SPACE = DesignSpace([Choice(name=f"k{i}", options=tuple(range(16))) for i in range(2)])


def _observed(costs):
    """Observations of all of the space's 256 configurations; infinite costs are failures."""
    return Observations(
        configs=SPACE.everything,
        costs=costs,
        failures=tuple(None if np.isfinite(c) else FailureKind.RUN_ERROR for c in costs),
        build_seconds=np.zeros(len(costs)),
    )


def _fitted(costs, **options):
    model = MixedEnsemble(MixedOptions(**options), context_of(SPACE))
    model.fit(_observed(costs))
    return model


def test_it_conforms():
    check_cost_model(lambda context: MixedEnsemble(MixedOptions(), context))


def test_it_orders_what_is_slow_as_well_as_what_is_fast():
    # Two orders of magnitude: throughput alone hardly tells the slow half apart.
    costs = 1e-3 * 100.0 ** (SPACE.everything[:, 0] / 15)
    scores = _fitted(costs, kappa=0.0).predict(SPACE.everything)
    slow = SPACE.everything[:, 0] >= 8
    assert np.corrcoef(scores[slow], -np.log(costs[slow]))[0, 1] > 0.95


def test_what_fails_is_scored_below_what_is_slow():
    costs = np.where(SPACE.everything[:, 1] < 4, np.inf, 1e-3 * (1 + SPACE.everything[:, 0]))
    scores = _fitted(costs).predict(SPACE.everything)
    assert scores[np.isinf(costs)].max() < scores[np.isfinite(costs)].min()


def test_uncertainty_raises_a_score():
    costs = 1e-3 * (1 + np.random.default_rng(0).random(256))
    low, high = (_fitted(costs, kappa=kappa).predict(SPACE.everything) for kappa in (0.0, 2.0))
    assert (high > low).all()


@pytest.mark.parametrize("costs", [np.full(256, np.inf), np.full(256, 1e-3)])
def test_where_nothing_differs_it_stays_untrained(costs):
    assert not _fitted(costs).trained

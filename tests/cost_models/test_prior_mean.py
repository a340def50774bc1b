"""A prior known beforehand guides a model, and does no harm where it is wrong."""

import attrs
import numpy as np
import pytest
from chameleon_core._pipeline.schema import StageSpec
from chameleon_core.plugin_api import Choice, CostModel, DesignSpace, PluginRecord
from chameleon_cost_models._options import (
    EnsembleOptions,
    GaussianProcessOptions,
    LightGBMOptions,
    MixedOptions,
    XGBoostOptions,
)
from chameleon_testing._conformance_cases import context_of, observe
from scipy import stats
from stages import maker

SPACE = DesignSpace([Choice(name=f"k{i}", options=tuple(range(1, 13))) for i in range(3)])
OPTIONS = (XGBoostOptions, LightGBMOptions, EnsembleOptions, MixedOptions, GaussianProcessOptions)


def seconds(configs):
    configs = np.asarray(configs, np.float64)
    return 1e-3 * np.exp(0.2 * np.abs(configs - [3, 8, 5]).sum(axis=1) + 0.05 * configs[:, 0])


class Knowing(CostModel):
    """Knows nearly everything beforehand."""

    trained = True
    sign = 1.0

    def __init__(self, options, context):
        pass

    def fit(self, observations):
        pass

    def predict(self, configs):
        offset = 0.3 * np.sin(np.asarray(configs).sum(axis=1))
        return np.exp(self.sign * 0.5 * (offset - np.log(seconds(configs))) - 5.0)


class Wrong(Knowing):
    """Takes the slowest for the best."""

    sign = -1.0


class Ignorant(Knowing):
    """Knows nothing of this task."""

    trained = False


def prior(model):
    record = PluginRecord(
        name="known", summary="", options=dict, factory=f"{model.__module__}:{model.__qualname__}"
    )
    return (StageSpec(kind="cost_models", name="known", record=record, options={}),)


def made(options, *priors):
    return maker(options(prior=priors))(context_of(SPACE))


def observed(count):
    configs = SPACE.sample(count, np.random.default_rng(3))
    return attrs.evolve(observe(SPACE, configs), costs=seconds(configs))


def order(model):
    rows = SPACE.all_legal
    return stats.kendalltau(model.predict(rows), -seconds(rows)).statistic


@pytest.mark.parametrize("options", OPTIONS)
def test_with_a_prior_a_model_is_trained_at_once_and_better_with_few(options):
    model, alone = made(options, *prior(Knowing)), made(options)
    assert model.trained
    assert not alone.trained
    assert order(model) > 0.6
    few = observed(12)
    model.fit(few)
    alone.fit(few)
    assert order(model) > order(alone)


@pytest.mark.parametrize("options", OPTIONS)
def test_a_wrong_prior_is_found_out(options):
    model, alone = made(options, *prior(Wrong)), made(options)
    many = observed(160)
    model.fit(many)
    alone.fit(many)
    assert order(model) > order(alone) - 0.1


@pytest.mark.parametrize("options", OPTIONS)
def test_a_prior_that_knows_nothing_changes_nothing(options):
    model, alone = made(options, *prior(Ignorant)), made(options)
    assert not model.trained
    few = observed(30)
    model.fit(few)
    alone.fit(few)
    rows = SPACE.all_legal[::7]
    np.testing.assert_allclose(model.predict(rows), alone.predict(rows))

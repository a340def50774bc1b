"""Every cost model of this repository keeps the contract."""

import pytest
from chameleon_cost_models.ensemble import Ensemble
from chameleon_cost_models.lightgbm_model import LightGBMModel
from chameleon_cost_models.options import EnsembleOptions, LightGBMOptions, XGBoostOptions
from chameleon_cost_models.xgboost_model import XGBoostModel
from chameleon_testing.conformance import check_cost_model


@pytest.mark.parametrize("objective", ["reg", "rank"])
def test_xgboost_conforms(objective):
    options = XGBoostOptions(objective=objective)
    check_cost_model(lambda context: XGBoostModel(options, context))


@pytest.mark.parametrize("extra_trees", [False, True])
def test_lightgbm_conforms(extra_trees):
    options = LightGBMOptions(extra_trees=extra_trees)
    check_cost_model(lambda context: LightGBMModel(options, context))


@pytest.mark.parametrize("acquisition", ["mean", "ucb", "ei"])
def test_ensemble_conforms(acquisition):
    options = EnsembleOptions(acquisition=acquisition)
    check_cost_model(lambda context: Ensemble(options, context))

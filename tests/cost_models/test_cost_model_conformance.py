"""Every cost model of this repository keeps the contract."""

import pytest
from chameleon_core.testing.conformance import check_cost_model
from chameleon_cost_models.options import XGBoostOptions
from chameleon_cost_models.xgboost_model import XGBoostModel


@pytest.mark.parametrize("objective", ["reg", "rank"])
def test_xgboost_conforms(objective):
    options = XGBoostOptions(objective=objective)
    check_cost_model(lambda context: XGBoostModel(options, context))

"""Options out of their range are refused by name."""

import pytest
from chameleon_cost_models.options import (
    EnsembleOptions,
    LightGBMOptions,
    TransferOptions,
    XGBoostOptions,
)


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

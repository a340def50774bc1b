"""LightGBM's leaf-wise boosted trees as a cost model, refitted after every batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from chameleon_core.plugin_api import Scores, StageContext

from chameleon_cost_models._inputs import THREADS, Features
from chameleon_cost_models._options import LightGBMOptions
from chameleon_cost_models._tree_model import TreeModel


class LightGBMModel(TreeModel):
    """Predicts relative throughput by LightGBM's leaf-wise boosted trees."""

    def __init__(self, options: LightGBMOptions, context: StageContext) -> None:
        super().__init__(context, options.transfer, options.prior)
        self._rounds = options.rounds
        self._parameters: dict[str, Any] = {
            "objective": "regression",
            "num_leaves": options.num_leaves,
            "learning_rate": options.learning_rate,
            "min_data_in_leaf": options.min_data_in_leaf,
            "lambda_l2": options.l2,
            "extra_trees": options.extra_trees,
            "num_threads": THREADS,
            "seed": int(context.rng.integers(2**31)),
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
            # One bin per value of a knob: there are few rows, and few values.
            "min_data_in_bin": 1,
            "feature_pre_filter": False,
        }
        self._booster: Any = None

    def grow(self, features: Features, quality: Scores, base: Scores) -> None:
        # Imported here: it takes a second, which the first batch need not wait for.
        import lightgbm  # noqa: PLC0415

        data = lightgbm.Dataset(features, label=quality - base, params=self._parameters)
        self._booster = lightgbm.train(self._parameters, data, num_boost_round=self._rounds)

    def evaluate(self, features: Features, base: Scores) -> Scores:
        predicted = self._booster.predict(features, num_threads=THREADS)
        return base + np.asarray(predicted, np.float64)

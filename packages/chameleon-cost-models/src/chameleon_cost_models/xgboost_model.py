"""AutoTVM's cost model: gradient-boosted trees, fitted afresh after every batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from chameleon_core.space import Configs
from chameleon_core.stages import CostModel, Observations, Scores, StageContext
from numpy.typing import NDArray

from chameleon_cost_models.options import XGBoostOptions

_OBJECTIVES: dict[str, dict[str, Any]] = {
    "reg": {"objective": "reg:squarederror"},
    # Pairs are drawn evenly over the whole list: which of two mediocre configurations is better
    # matters too, since a walk has to climb past them. xgboost's own default looks at the top.
    "rank": {
        "objective": "rank:pairwise",
        "lambdarank_pair_method": "mean",
        "lambdarank_num_pair_per_sample": 8,
        "lambdarank_normalization": False,
    },
}


class XGBoostModel(CostModel):
    """Boosted trees from a space's features to relative throughput.

    The target is best cost over cost, and 0 for every failure, so that 1 is the best known
    configuration whatever the operator (AutoTVM, Chen et al. 2018, section 5).
    """

    def __init__(self, options: XGBoostOptions, context: StageContext) -> None:
        self._space = context.space
        self._rounds = options.rounds
        self._parameters: dict[str, Any] = {
            "max_depth": options.max_depth,
            "eta": options.learning_rate,
            "gamma": options.gamma,
            "min_child_weight": options.min_child_weight,
            "nthread": context.threads,
            "tree_method": "hist",
            "verbosity": 0,
            "seed": int(context.rng.integers(2**31)),
            **_OBJECTIVES[options.objective],
        }
        self._booster: Any = None

    @property
    def trained(self) -> bool:
        return self._booster is not None

    def fit(self, observations: Observations) -> None:
        """Fit to everything measured so far.

        Stays untrained until two observations differ: a constant would only make every walk
        believe that its first configurations are the best.
        """
        quality = observations.relative_throughput
        if len(quality) == 0 or np.ptp(quality) == 0.0:
            self._booster = None
            return
        # Imported here: it takes a second, which the first batch need not wait for.
        import xgboost  # noqa: PLC0415

        data = xgboost.DMatrix(
            self._features(observations.configs),
            label=quality,
            nthread=self._parameters["nthread"],
        )
        data.set_group([len(quality)])
        self._booster = xgboost.train(self._parameters, data, num_boost_round=self._rounds)

    def predict(self, configs: Configs) -> Scores:
        """Predicted relative throughput (``reg``) or a rank score, shape (n,)."""
        if self._booster is None or not len(configs):
            return np.zeros(len(configs))
        # Without a DMatrix a call costs a quarter of a millisecond, which a walk of 500 steps
        # pays 500 times.
        predicted = self._booster.inplace_predict(self._features(configs), validate_features=False)
        return np.asarray(predicted, np.float64)

    def _features(self, configs: Configs) -> NDArray[np.float32]:
        """The space's features with what xgboost refuses (infinities) as missing values."""
        features = self._space.features(configs)
        return np.where(np.isfinite(features), features, np.float32(np.nan))

"""AutoTVM's cost model: gradient-boosted trees, refitted after every batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from chameleon_core.plugin_api import Scores, StageContext
from numpy.typing import NDArray

from chameleon_cost_models._inputs import THREADS, Features
from chameleon_cost_models._options import XGBoostOptions
from chameleon_cost_models._tree_model import TreeModel

_OBJECTIVES: dict[str, dict[str, Any]] = {
    "reg": {"objective": "reg:squarederror"},
    # Pairs are drawn evenly over the whole list, since a walk also has to choose between mediocre
    # configurations. The default of XGBoost draws them from the top of the list.
    "rank": {
        "objective": "rank:pairwise",
        "lambdarank_pair_method": "mean",
        "lambdarank_num_pair_per_sample": 8,
        "lambdarank_normalization": False,
    },
}


class XGBoostModel(TreeModel):
    """Predicts relative throughput by boosted trees; only its order with ``objective: rank``."""

    def __init__(self, options: XGBoostOptions, context: StageContext) -> None:
        super().__init__(context, options.transfer, options.prior)
        self._rounds = options.rounds
        self._patience = options.early_stopping
        self._top = context.batch_size
        self._parameters: dict[str, Any] = {
            "max_depth": options.max_depth,
            "eta": options.learning_rate,
            "gamma": options.gamma,
            "min_child_weight": options.min_child_weight,
            "nthread": THREADS,
            "tree_method": "hist",
            "verbosity": 0,
            "seed": int(context.rng.integers(2**31)),
            **_OBJECTIVES[options.objective],
        }
        self._booster: Any = None
        self._trees = 0

    def grow(self, features: Features, quality: Scores, base: Scores) -> None:
        # Imported here: it takes a second, which the first batch need not wait for.
        import xgboost  # noqa: PLC0415

        data = xgboost.DMatrix(features, label=quality, nthread=THREADS)
        data.set_group([len(quality)])
        margin = self._margin(base)
        if margin is not None:
            data.set_base_margin(margin)
        if self._patience:
            self._booster = xgboost.Booster(self._parameters, [data])
            self._grow_while_better(data, quality)
        else:
            self._booster = xgboost.train(self._parameters, data, num_boost_round=self._rounds)
            self._trees = self._rounds

    def _margin(self, base: Scores) -> Scores | None:
        """The base margin of xgboost, or None for its default."""
        return base if self.has_prior else None

    def _grow_while_better(self, data: Any, quality: Scores) -> None:
        """Add trees while they improve the recall of the best observations."""
        best = -np.inf
        for tree in range(self._rounds):
            self._booster.update(data, tree)
            # xgboost keeps the margins of its training data: no tree is evaluated again.
            margins = self._booster.predict(data, output_margin=True)
            recall = average_recall(margins, quality, self._top)
            if recall > best:
                best, self._trees = recall, tree + 1
            elif tree + 1 - self._trees >= self._patience:
                break

    def evaluate(self, features: Features, base: Scores) -> Scores:
        """The score of each configuration, shape (n,)."""
        # Making a DMatrix would cost a quarter of a millisecond in each of 500 steps of a walk.
        predicted = self._booster.inplace_predict(
            features,
            iteration_range=(0, self._trees),
            validate_features=False,
            base_margin=self._margin(base),
        )
        return np.asarray(predicted, np.float64)


def average_recall(predicted: NDArray[np.floating], truth: NDArray[np.floating], top: int) -> float:
    """The mean recall of the best k configurations over k = 1 to ``top``.

    The recall is the share of the k truly best among the k with the best predictions. ``predicted``
    and ``truth`` are qualities, higher is better, shape (n,); the first of equal values counts as
    better.
    """
    count = len(truth)
    ranks = np.empty((2, count), np.intp)
    for row, values in enumerate((predicted, truth)):
        ranks[row, np.argsort(-values, kind="stable")] = np.arange(count)
    # The two top-k lists share a configuration as soon as k exceeds the larger of its two ranks.
    recalled = np.cumsum(np.bincount(ranks.max(axis=0), minlength=count))[:top]
    return float(np.mean(recalled / np.arange(1, len(recalled) + 1)))

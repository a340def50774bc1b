"""Bagging: several ensembles of boosted trees in one xgboost model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chameleon_cost_models.inputs import THREADS, Features

Gradient = NDArray[np.float32]


def bagged_trees(
    features: Features,
    targets: NDArray[np.float64],
    *,
    seed: int,
    rounds: int,
    parameters: Mapping[str, Any],
) -> Any:
    """Fit several ensembles of boosted trees (members) as the outputs of one xgboost model.

    All members see the same rows with different random weights. One call fits all members, and one
    call predicts with all of them. The weights come from an exponential distribution (the Bayesian
    bootstrap, Rubin 1981). Drawing rows instead would lose some rows if there are few.

    Args:
        features: The features of the measured configurations, shape (n, features).
        targets: The standardised targets of each member, shape (n, members).
        seed: The seed of the weights and the trees. The same seed gives the same model.
        rounds: The number of trees of each member.
        parameters: More parameters of xgboost.

    Returns:
        The xgboost model (``Booster``) with one output per member.
    """
    # Imported here: it takes a second, which the first batch need not wait for.
    import xgboost  # noqa: PLC0415

    shape = targets.shape
    wanted = targets.astype(np.float32)
    weights = np.random.default_rng(seed).exponential(size=shape).astype(np.float32)

    # Own objective: xgboost's takes one weight a row, not one a row and member.
    def squared_error(predicted: Gradient, _data: object) -> tuple[Gradient, Gradient]:
        gradient = np.multiply(predicted.reshape(shape) - wanted, weights, dtype=np.float32)
        return gradient, weights

    return xgboost.train(
        {**tree_parameters(seed), **parameters, "base_score": 0.0},
        xgboost.DMatrix(features, label=wanted, nthread=THREADS),
        num_boost_round=rounds,
        obj=squared_error,
    )


def tree_parameters(seed: int) -> dict[str, Any]:
    """The xgboost parameters that all tree models of this package share."""
    return {"nthread": THREADS, "tree_method": "hist", "verbosity": 0, "seed": seed}


def opinions(booster: Any, features: Features) -> NDArray[np.float64]:
    """The prediction of every member (ensemble of trees) for each configuration.

    Args:
        booster: A model that ``bagged_trees`` returned.
        features: The features of n configurations, shape (n, features).

    Returns:
        An array of shape (n, members).
    """
    predicted = booster.inplace_predict(features, validate_features=False)
    return np.asarray(predicted, np.float64).reshape(len(features), -1)

"""Boosted trees several times over in one xgboost model, and what they share."""

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
    """Members that see the same rows with other weights, as the outputs of one model.

    So fitting is one call, and so is predicting, on features looked up once. The weights are drawn
    from an exponential distribution (the Bayesian bootstrap, Rubin 1981). That is smoother than
    drawing rows, which with few rows would lose some of them altogether.

    Args:
        features: shape (n, features).
        targets: what each member is to learn, shape (n, members), standardised.
        seed: of the weights and of the trees; the same one gives the same model.
        rounds: trees of each member.
        parameters: of xgboost.
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
    """Options that all models of boosted trees here have in common."""
    return {"nthread": THREADS, "tree_method": "hist", "verbosity": 0, "seed": seed}


def opinions(booster: Any, features: Features) -> NDArray[np.float64]:
    """Every member's prediction, shape (n, members)."""
    predicted = booster.inplace_predict(features, validate_features=False)
    return np.asarray(predicted, np.float64).reshape(len(features), -1)

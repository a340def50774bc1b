"""Options of the cost models. This module imports no machine-learning library."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import attrs
from attrs import validators
from chameleon_core.plugin_api import StageSpec, option

Prior = tuple[StageSpec | str, ...]
"""A tuple with at most one cost model."""

_PRIOR: Any = option(
    (),
    "a list with one model that was trained before the run, such as one-shot, whose "
    "predictions are the prior mean of this model",
    validators.max_len(1),
    stages="cost_models",
)


@attrs.frozen(kw_only=True)
class TransferOptions:
    """Options for learning from other tasks and from earlier runs."""

    tasks: bool = option(False, "learn from the other tasks of the run")
    history: tuple[Path, ...] = option(
        (), "folders of finished runs to learn from; they are only read", path=True
    )
    same_task: bool = option(True, "also use measurements of the same task from earlier runs")
    records: int = option(500, "fewest measurements for which a base model is fitted", at_least=1)
    half_life: float = option(
        64.0,
        "number of the task's own measurements after which the base model counts half",
        above=0.0,
    )


_TRANSFER: Any = option(TransferOptions, "what to learn from other tasks and earlier runs")


@attrs.frozen(kw_only=True)
class XGBoostOptions:
    """Options of the cost model ``xgboost``. The defaults are AutoTVM's parameters."""

    objective: Literal["reg", "rank"] = option(
        "reg",
        "reg predicts relative throughput, rank only the order (pairwise)",
        validators.in_(("reg", "rank")),
    )
    max_depth: int = option(3, "largest depth of a tree", at_least=1)
    learning_rate: float = option(0.3, "shrinkage of each tree (eta)", above=0.0, at_most=1.0)
    gamma: float = option(1e-4, "least gain of a split", at_least=0.0)
    min_child_weight: float = option(1.0, "least weight of a leaf", at_least=0.0)
    rounds: int = option(300, "largest number of trees", at_least=1)
    early_stopping: int = option(
        20,
        "number of trees without a better recall of the best measured configurations after "
        "which training ends (AutoTVM has 20); 0: all trees",
        at_least=0,
    )
    transfer: TransferOptions = _TRANSFER
    prior: Prior = _PRIOR


@attrs.frozen(kw_only=True)
class LightGBMOptions:
    """Options of the cost model ``lightgbm``."""

    num_leaves: int = option(8, "largest number of leaves of a tree", at_least=2)
    learning_rate: float = option(0.2, "shrinkage of each tree", above=0.0, at_most=1.0)
    min_data_in_leaf: int = option(2, "fewest observations in a leaf", at_least=1)
    l2: float = option(0.0, "penalty on leaf values", at_least=0.0)
    extra_trees: bool = option(
        False, "try one random threshold per feature instead of all thresholds"
    )
    rounds: int = option(100, "number of trees", at_least=1)
    transfer: TransferOptions = _TRANSFER
    prior: Prior = _PRIOR


@attrs.frozen(kw_only=True)
class EnsembleOptions:
    """Options of the cost model ``ensemble``."""

    acquisition: Literal["ucb", "ei", "mean"] = option(
        "ucb",
        "the score: ucb is mean + kappa x standard deviation, ei is the expected "
        "improvement over the best, mean is the prediction alone",
        validators.in_(("ucb", "ei", "mean")),
    )
    kappa: float = option(
        2.0, "weight of the uncertainty in ucb; larger values explore more", at_least=0.0
    )
    members: int = option(8, "number of models in the ensemble", at_least=2)
    max_depth: int = option(3, "largest depth of a tree", at_least=1)
    learning_rate: float = option(0.3, "shrinkage of each tree (eta)", above=0.0, at_most=1.0)
    min_child_weight: float = option(0.0, "least weight of a leaf", at_least=0.0)
    l2: float = option(1.0, "penalty on leaf values", at_least=0.0)
    feature_fraction: float = option(
        1.0, "share of the features that each split may choose from", above=0.0, at_most=1.0
    )
    rounds: int = option(50, "number of trees of each member", at_least=1)
    transfer: TransferOptions = _TRANSFER
    prior: Prior = _PRIOR


@attrs.frozen(kw_only=True)
class MixedOptions:
    """Options of the cost model ``mixed``."""

    kappa: float = option(
        2.0, "weight of the uncertainty in the score; larger values explore more", at_least=0.0
    )
    members: int = option(
        8, "number of models in the ensemble, half of them for each scale", at_least=4
    )
    max_depth: int = option(3, "largest depth of a tree", at_least=1)
    learning_rate: float = option(0.3, "shrinkage of each tree (eta)", above=0.0, at_most=1.0)
    rounds: int = option(50, "number of trees of each member", at_least=1)
    price: float = option(
        0.0,
        "standard deviations that a score loses if build and run are expected to take twice"
        " as long; 0: durations do not matter",
        at_least=0.0,
    )
    prior: Prior = _PRIOR


@attrs.frozen(kw_only=True)
class GaussianProcessOptions:
    """Options of the cost model ``gaussian-process``."""

    kappa: float = option(
        2.0, "weight of the uncertainty in the score; larger values explore more", at_least=0.0
    )
    measurements: int = option(
        1024,
        "largest number of measurements to learn from, half of them the fastest, half the "
        "latest; the time grows with its cube",
        at_least=16,
    )
    prior: Prior = _PRIOR


@attrs.frozen(kw_only=True)
class AlternatingOptions:
    """Options of the cost model ``alternating``."""

    models: tuple[StageSpec | str, ...] = option(
        ("mixed", "gaussian-process"),
        "the models that take turns, each a name or a mapping with a name and options",
        validators.min_len(1),
        stages="cost_models",
    )

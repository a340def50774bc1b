"""Options of the cost models. Importing them imports no learning library."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import attrs
from attrs import validators

from chameleon_cost_models.prior_options import PRIOR, Prior, at_most_one


@attrs.frozen(kw_only=True)
class TransferOptions:
    """Options of learning from other tasks and from earlier runs."""

    tasks: bool = attrs.field(
        default=False, metadata={"help": "learn from the other tasks of the run"}
    )
    history: tuple[Path, ...] = attrs.field(
        default=(),
        metadata={"help": "folders of finished runs to learn from; only read", "path": True},
    )
    same_task: bool = attrs.field(
        default=True,
        metadata={"help": "use what earlier runs measured of this very task, too"},
    )
    records: int = attrs.field(
        default=500,
        validator=validators.ge(1),
        metadata={"help": "fewest measurements a base model is made of"},
    )
    half_life: float = attrs.field(
        default=64.0,
        validator=validators.gt(0.0),
        metadata={"help": "own measurements after which the base model counts half"},
    )


_TRANSFER = {"help": "what to learn from other tasks and earlier runs"}


@attrs.frozen(kw_only=True)
class XGBoostOptions:
    """Options of ``xgboost``; the defaults are AutoTVM's parameters."""

    objective: Literal["reg", "rank"] = attrs.field(
        default="reg",
        validator=validators.in_(("reg", "rank")),
        metadata={"help": "reg predicts relative throughput, rank only the order (pairwise)"},
    )
    max_depth: int = attrs.field(
        default=3, validator=validators.ge(1), metadata={"help": "depth of a tree"}
    )
    learning_rate: float = attrs.field(
        default=0.3,
        validator=[validators.gt(0.0), validators.le(1.0)],
        metadata={"help": "shrinkage of each tree (eta)"},
    )
    gamma: float = attrs.field(
        default=1e-4, validator=validators.ge(0.0), metadata={"help": "least gain of a split"}
    )
    min_child_weight: float = attrs.field(
        default=1.0, validator=validators.ge(0.0), metadata={"help": "least weight of a leaf"}
    )
    rounds: int = attrs.field(
        default=300, validator=validators.ge(1), metadata={"help": "number of trees at most"}
    )
    early_stopping: int = attrs.field(
        default=20,
        validator=validators.ge(0),
        metadata={
            "help": "stop after so many trees without a better recall of the best measured "
            "configurations (AutoTVM's 20); 0 grows all trees"
        },
    )
    transfer: TransferOptions = attrs.field(factory=TransferOptions, metadata=_TRANSFER)
    prior: Prior = attrs.field(default=(), validator=at_most_one, metadata=PRIOR)


@attrs.frozen(kw_only=True)
class LightGBMOptions:
    """Options of ``lightgbm``."""

    num_leaves: int = attrs.field(
        default=8, validator=validators.ge(2), metadata={"help": "leaves of a tree"}
    )
    learning_rate: float = attrs.field(
        default=0.2,
        validator=[validators.gt(0.0), validators.le(1.0)],
        metadata={"help": "shrinkage of each tree"},
    )
    min_data_in_leaf: int = attrs.field(
        default=2, validator=validators.ge(1), metadata={"help": "fewest observations of a leaf"}
    )
    l2: float = attrs.field(
        default=0.0, validator=validators.ge(0.0), metadata={"help": "penalty on leaf values"}
    )
    extra_trees: bool = attrs.field(
        default=False, metadata={"help": "try one random threshold per feature instead of all"}
    )
    rounds: int = attrs.field(
        default=100, validator=validators.ge(1), metadata={"help": "number of trees"}
    )
    transfer: TransferOptions = attrs.field(factory=TransferOptions, metadata=_TRANSFER)
    prior: Prior = attrs.field(default=(), validator=at_most_one, metadata=PRIOR)


@attrs.frozen(kw_only=True)
class EnsembleOptions:
    """Options of ``ensemble``."""

    acquisition: Literal["ucb", "ei", "mean"] = attrs.field(
        default="ucb",
        validator=validators.in_(("ucb", "ei", "mean")),
        metadata={
            "help": "what a score is: ucb mean + kappa x standard deviation, ei the expected "
            "improvement over the best, mean the prediction alone"
        },
    )
    kappa: float = attrs.field(
        default=2.0,
        validator=validators.ge(0.0),
        metadata={"help": "weight of the uncertainty in ucb; larger explores more"},
    )
    members: int = attrs.field(
        default=8, validator=validators.ge(2), metadata={"help": "models that vote"}
    )
    max_depth: int = attrs.field(
        default=3, validator=validators.ge(1), metadata={"help": "depth of a tree"}
    )
    learning_rate: float = attrs.field(
        default=0.3,
        validator=[validators.gt(0.0), validators.le(1.0)],
        metadata={"help": "shrinkage of each tree (eta)"},
    )
    min_child_weight: float = attrs.field(
        default=0.0, validator=validators.ge(0.0), metadata={"help": "least weight of a leaf"}
    )
    l2: float = attrs.field(
        default=1.0, validator=validators.ge(0.0), metadata={"help": "penalty on leaf values"}
    )
    feature_fraction: float = attrs.field(
        default=1.0,
        validator=[validators.gt(0.0), validators.le(1.0)],
        metadata={"help": "share of the features each split may choose from"},
    )
    rounds: int = attrs.field(
        default=50, validator=validators.ge(1), metadata={"help": "trees of each member"}
    )
    transfer: TransferOptions = attrs.field(factory=TransferOptions, metadata=_TRANSFER)
    prior: Prior = attrs.field(default=(), validator=at_most_one, metadata=PRIOR)

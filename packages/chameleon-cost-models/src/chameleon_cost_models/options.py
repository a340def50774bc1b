"""Options of the cost models. Importing them imports no learning library."""

from __future__ import annotations

from typing import Literal

import attrs
from attrs import validators


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
        default=100, validator=validators.ge(1), metadata={"help": "number of trees"}
    )

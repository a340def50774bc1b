"""Options of ``mixed``. Importing them imports no learning library."""

from __future__ import annotations

import attrs
from attrs import validators

from chameleon_cost_models.prior_options import PRIOR, Prior, at_most_one


@attrs.frozen(kw_only=True)
class MixedOptions:
    """Options of ``mixed``."""

    kappa: float = attrs.field(
        default=2.0,
        validator=validators.ge(0.0),
        metadata={"help": "weight of the uncertainty in the score; larger explores more"},
    )
    members: int = attrs.field(
        default=8,
        validator=validators.ge(4),
        metadata={"help": "models that vote, half of them on each scale"},
    )
    max_depth: int = attrs.field(
        default=3, validator=validators.ge(1), metadata={"help": "depth of a tree"}
    )
    learning_rate: float = attrs.field(
        default=0.3,
        validator=[validators.gt(0.0), validators.le(1.0)],
        metadata={"help": "shrinkage of each tree (eta)"},
    )
    rounds: int = attrs.field(
        default=50, validator=validators.ge(1), metadata={"help": "trees of each member"}
    )
    price: float = attrs.field(
        default=0.0,
        validator=validators.ge(0.0),
        metadata={
            "help": "standard deviations that a score loses if building and running is expected to "
            "take twice as long; 0: seconds do not matter"
        },
    )
    prior: Prior = attrs.field(default=(), validator=at_most_one, metadata=PRIOR)


__all__ = ["MixedOptions"]

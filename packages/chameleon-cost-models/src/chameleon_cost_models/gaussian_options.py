"""Options of ``gaussian-process``. Importing them imports no learning library."""

from __future__ import annotations

import attrs
from attrs import validators

from chameleon_cost_models.prior_options import PRIOR, Prior, at_most_one


@attrs.frozen(kw_only=True)
class GaussianProcessOptions:
    """Options of ``gaussian-process``."""

    kappa: float = attrs.field(
        default=2.0,
        validator=validators.ge(0.0),
        metadata={"help": "weight of the uncertainty in the score; larger explores more"},
    )
    measurements: int = attrs.field(
        default=1024,
        validator=validators.ge(16),
        metadata={
            "help": "measurements it learns from at most, the fastest and the latest half each; "
            "time grows with the cube of it"
        },
    )
    prior: Prior = attrs.field(default=(), validator=at_most_one, metadata=PRIOR)


__all__ = ["GaussianProcessOptions"]

"""The option ``prior``, which several models have. Importing it imports no learning library."""

from __future__ import annotations

from typing import Any

import attrs
from attrs import validators
from chameleon_core.pipeline.schema import StageSpec

Prior = tuple[StageSpec | str, ...]
"""At most one cost model."""


def prior_option() -> Any:
    """The field of an options class; no prior by default."""
    return attrs.field(
        default=(),
        validator=validators.max_len(1),
        metadata={
            "stages": "cost_models",
            "help": "a list of one model that was trained beforehand, such as one-shot: what it "
            "predicts is the mean that this one starts from",
        },
    )


__all__ = ["Prior", "prior_option"]

"""The option ``prior``, which several models have. Importing it imports no learning library."""

from __future__ import annotations

from typing import Any

from attrs import validators
from chameleon_core.pipeline.schema import StageSpec

Prior = tuple[StageSpec | str, ...]
"""At most one cost model."""


at_most_one: Any = validators.max_len(1)

PRIOR = {
    "stages": "cost_models",
    "help": "a list of one model that was trained beforehand, such as one-shot: what it predicts "
    "is the mean that this one starts from",
}
"""Metadata of the option."""

__all__ = ["PRIOR", "Prior", "at_most_one"]

"""Options of the samplers. Importing them imports no numerical library."""

from __future__ import annotations

import attrs
from attrs import validators


@attrs.frozen(kw_only=True)
class GreedyOptions:
    """Options of ``greedy``; the default is AutoTVM's number."""

    epsilon: float = attrs.field(
        default=0.05,
        validator=[validators.ge(0.0), validators.le(1.0)],
        metadata={"help": "share of a batch drawn at random from the whole space"},
    )

"""Options of the explorers. Importing them imports no numerical library."""

from __future__ import annotations

import attrs
from attrs import validators


@attrs.frozen(kw_only=True)
class AnnealingOptions:
    """Options of ``annealing``; the defaults are AutoTVM's numbers."""

    chains: int = attrs.field(
        default=128, validator=validators.ge(1), metadata={"help": "parallel chains"}
    )
    steps: int = attrs.field(
        default=500, validator=validators.ge(1), metadata={"help": "steps of every chain a round"}
    )
    temperature: float = attrs.field(
        default=1.0,
        validator=validators.ge(0.0),
        metadata={"help": "initial temperature, in units of the score; falls linearly to 0"},
    )
    early_stop: int = attrs.field(
        default=50,
        validator=validators.ge(1),
        metadata={"help": "stop after so many steps without a change of the best set"},
    )
    persistent: bool = attrs.field(
        default=True, metadata={"help": "chains go on from round to round"}
    )
    elites: int = attrs.field(
        default=0,
        validator=validators.ge(0),
        metadata={"help": "chains restarted each round at the best configurations measured"},
    )
    exhaustive: bool = attrs.field(
        default=False,
        metadata={"help": "score all of a space that is smaller than what a walk would look at"},
    )

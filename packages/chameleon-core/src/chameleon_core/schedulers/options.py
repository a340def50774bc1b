"""Options of the schedulers, importable without anything else."""

from __future__ import annotations

import attrs
from attrs import validators


@attrs.frozen(kw_only=True)
class GradientOptions:
    """Options of the ``gradient`` scheduler."""

    window: int = attrs.field(
        default=2,
        validator=validators.ge(1),
        metadata={"help": "a task's last batches, which tell what a further one may bring"},
    )
    stop_gain: float = attrs.field(
        default=0.002,
        validator=validators.ge(0.0),
        metadata={
            "help": "a task is left alone when the window's batches saved less than this share of "
            "the network's latency each; 0 spends the whole budget"
        },
    )
    trust: float = attrs.field(
        default=0.2,
        validator=[validators.ge(0.0), validators.le(1.0)],
        metadata={"help": "weight of what was saved lately against what might still be saved"},
    )
    headroom: float = attrs.field(
        default=1.0,
        validator=validators.ge(1.0),
        metadata={
            "help": "nothing is hoped for from tasks that reach one part in so many of the "
            "operations per second of the fastest one"
        },
    )

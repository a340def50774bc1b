"""Options of the ``local`` runner, importable without any numerical library."""

from __future__ import annotations

import attrs
from attrs import validators
from chameleon_core.plugins.options import NOT_BINDING

from chameleon_runners.timing_options import TimingOptions, before, in_place


@attrs.frozen(kw_only=True, field_transformer=in_place)
class LocalOptions(TimingOptions):
    """Options of the ``local`` runner; every duration is in seconds."""

    threads: int | None = attrs.field(
        default=None,
        validator=validators.optional(validators.ge(1)),
        metadata={
            **before("workers"),
            "help": "threads a kernel runs with; all usable cores where not given",
        },
    )
    ahead: int = attrs.field(
        default=1,
        validator=validators.ge(0),
        metadata={
            **NOT_BINDING,
            **before("cold_bytes"),
            "help": "a task's first configurations, handed out before others are built",
        },
    )
    build_ahead: int = attrs.field(
        default=8,
        validator=validators.ge(1),
        metadata={
            **NOT_BINDING,
            "help": "built kernels a worker holds at most before they are timed",
        },
    )
    recycle_after: int = attrs.field(
        default=500,
        validator=validators.ge(1),
        metadata={**NOT_BINDING, "help": "builds after which a worker is replaced by a fresh one"},
    )
    recycle_growth_mib: int = attrs.field(
        default=1024,
        validator=validators.ge(1),
        metadata={
            **NOT_BINDING,
            "help": "growth of a worker's memory in MiB after which it is replaced",
        },
    )
    retries: int = attrs.field(
        default=2,
        validator=validators.ge(0),
        metadata={
            **NOT_BINDING,
            "help": "further tries of a candidate whose worker was killed from outside",
        },
    )
    leader_margin: float = attrs.field(
        default=0.05,
        validator=validators.ge(0.0),
        metadata={
            **before("compare_rounds"),
            "help": "kernels this close to the best stay in the rounds",
        },
    )
    leader_spread: float = attrs.field(
        default=0.005,
        validator=validators.gt(0.0),
        metadata={"help": "rounds go on for kernels no three of whose repeats agree this closely"},
    )
    leaders: int = attrs.field(
        default=16,
        validator=validators.ge(0),
        metadata={"help": "kernels of a batch kept at most to be timed again"},
    )
    leader_rounds: int = attrs.field(
        default=24,
        validator=validators.ge(1),
        metadata={"help": "rounds at most"},
    )


__all__ = ["LocalOptions"]

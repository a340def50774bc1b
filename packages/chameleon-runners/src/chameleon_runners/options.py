"""Options of the runners, importable without any numerical library."""

from __future__ import annotations

import attrs
from attrs import validators


@attrs.frozen(kw_only=True)
class LocalOptions:
    """Options of the ``local`` runner; every duration is in seconds."""

    threads: int | None = attrs.field(
        default=None,
        validator=validators.optional(validators.ge(1)),
        metadata={"help": "threads a kernel runs with; all usable cores where not given"},
    )
    workers: int | None = attrs.field(
        default=None,
        validator=validators.optional(validators.ge(1)),
        metadata={"help": "worker processes that build; one per usable core where not given"},
    )
    build_timeout: float = attrs.field(
        default=30.0,
        validator=validators.gt(0.0),
        metadata={"help": "longest build in seconds, counted from its start"},
    )
    build_floor: float = attrs.field(
        default=10.0,
        validator=validators.gt(0.0),
        metadata={"help": "the deadline derived from earlier builds is never below this"},
    )
    run_timeout: float = attrs.field(
        default=10.0,
        validator=validators.gt(0.0),
        metadata={"help": "longest check and timing of one candidate in seconds"},
    )
    run_floor: float = attrs.field(
        default=2.0,
        validator=validators.gt(0.0),
        metadata={"help": "the deadline derived from the best time is never below this"},
    )
    run_factor: float = attrs.field(
        default=100.0,
        validator=validators.gt(1.0),
        metadata={"help": "kernels slower than the best by this factor run into the deadline"},
    )
    start_timeout: float = attrs.field(
        default=120.0,
        validator=validators.gt(0.0),
        metadata={"help": "longest start of a worker, its imports included, in seconds"},
    )
    reference_timeout: float = attrs.field(
        default=300.0,
        validator=validators.gt(0.0),
        metadata={"help": "longest computation of the reference outputs in seconds"},
    )
    memory_mib: int | None = attrs.field(
        default=None,
        validator=validators.optional(validators.ge(64)),
        metadata={"help": "memory limit of a worker in MiB; a share of the machine's if absent"},
    )
    ahead: int = attrs.field(
        default=1,
        validator=validators.ge(0),
        metadata={"help": "a task's first configurations, handed out before others are built"},
    )
    build_ahead: int = attrs.field(
        default=8,
        validator=validators.ge(1),
        metadata={"help": "built kernels a worker holds at most before they are timed"},
    )
    recycle_after: int = attrs.field(
        default=500,
        validator=validators.ge(1),
        metadata={"help": "builds after which a worker is replaced by a fresh one"},
    )
    recycle_growth_mib: int = attrs.field(
        default=1024,
        validator=validators.ge(1),
        metadata={"help": "growth of a worker's memory in MiB after which it is replaced"},
    )
    retries: int = attrs.field(
        default=2,
        validator=validators.ge(0),
        metadata={"help": "further tries of a candidate whose worker was killed from outside"},
    )
    cold_bytes: int = attrs.field(
        default=0,
        validator=validators.ge(0),
        metadata={
            "help": "bytes touched between runs, so that weights come from memory; 0 for hot caches"
        },
    )
    repeat_seconds: float = attrs.field(
        default=0.0005,
        validator=validators.gt(0.0),
        metadata={"help": "a repeat averages over as many runs as fill this many seconds"},
    )
    turn_seconds: float = attrs.field(
        default=0.006,
        validator=validators.gt(0.0),
        metadata={"help": "repeats of a kernel's turn in the rounds fill this many seconds"},
    )
    min_repeats: int = attrs.field(
        default=6, validator=validators.ge(1), metadata={"help": "repeats at least"}
    )
    max_repeats: int = attrs.field(
        default=24, validator=validators.ge(1), metadata={"help": "repeats at most"}
    )
    spread: float = attrs.field(
        default=0.01,
        validator=validators.gt(0.0),
        metadata={"help": "repeats end once three agree with the fastest this closely"},
    )
    # A busy process on one of two cores makes a kernel appear about twice as slow as it is.
    slow_factor: float = attrs.field(
        default=2.5,
        validator=validators.gt(1.0),
        metadata={"help": "one repeat is enough for kernels slower than the best by this factor"},
    )
    leader_margin: float = attrs.field(
        default=0.05,
        validator=validators.ge(0.0),
        metadata={"help": "kernels this close to the best stay in the rounds"},
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
    compare_rounds: int = attrs.field(
        default=20,
        validator=validators.ge(1),
        metadata={"help": "turns of each contender in the final comparison"},
    )


__all__ = ["LocalOptions"]

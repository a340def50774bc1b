"""What every runner of a fleet can be told; importable without any numerical library."""

from __future__ import annotations

import attrs
from attrs import validators

_PATIENCE: float | None = 600.0


def _not_negative(_: object, attribute: attrs.Attribute[float | None], value: float | None) -> None:
    if value is not None and value < 0.0:
        raise ValueError(f"'{attribute.name}' must be at least 0, not {value}")


@attrs.frozen(kw_only=True)
class FleetOptions:
    """Options of runners that measure on many devices; every duration is in seconds."""

    workers: int | None = attrs.field(
        default=None,
        validator=validators.optional(validators.ge(1)),
        metadata={"help": "worker processes that build; one per usable core where not given"},
    )
    threads: int = attrs.field(
        default=1,
        validator=validators.ge(1),
        metadata={"help": "threads a kernel runs with on a device's processor; GPUs ignore it"},
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
        metadata={"help": "longest load, check and timing of one candidate on a device in seconds"},
    )
    run_floor: float = attrs.field(
        default=4.0,
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
    connect_timeout: float = attrs.field(
        default=30.0,
        validator=validators.gt(0.0),
        metadata={"help": "longest connection to a device, or self-test of one, in seconds"},
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
    recycle_after: int = attrs.field(
        default=500,
        validator=validators.ge(1),
        metadata={"help": "builds after which a worker is replaced by a fresh one"},
    )
    build_ahead: int = attrs.field(
        default=2,
        validator=validators.ge(1),
        metadata={"help": "built candidates per device that may wait for one"},
    )
    retries: int = attrs.field(
        default=2,
        validator=validators.ge(0),
        metadata={"help": "further tries, elsewhere, of a candidate that a device failed on"},
    )
    set_aside_after: int = attrs.field(
        default=3,
        validator=validators.ge(1),
        metadata={
            "help": "a device that fails so often in a row where others succeed is set aside"
        },
    )
    probe_after: float = attrs.field(
        default=1.0,
        validator=validators.gt(0.0),
        metadata={"help": "pause before a lost device is tried again, doubled each time"},
    )
    patience: float | None = attrs.field(
        default=_PATIENCE,
        validator=_not_negative,
        metadata={"help": "how long to wait for a device when none is left; null for ever"},
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
        metadata={"help": "repeats of a contender's turn in the comparison fill this many seconds"},
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
    slow_factor: float = attrs.field(
        default=2.5,
        validator=validators.gt(1.0),
        metadata={"help": "one repeat is enough for kernels slower than the best by this factor"},
    )
    compare_rounds: int = attrs.field(
        default=20,
        validator=validators.ge(1),
        metadata={"help": "turns of each contender in the final comparison"},
    )


__all__ = ["FleetOptions"]

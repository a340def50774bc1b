"""What every runner of a fleet can be told; importable without any numerical library."""

from __future__ import annotations

import attrs
from attrs import validators
from chameleon_core.plugins.options import NOT_BINDING

from chameleon_runners.timing_options import TimingOptions, before, in_place

_PATIENCE: float | None = 600.0
_PACE_TOLERANCE: float | None = 1.25


def _not_negative(_: object, attribute: attrs.Attribute[float | None], value: float | None) -> None:
    if value is not None and value < 0.0:
        raise ValueError(f"'{attribute.name}' must be at least 0, not {value}")


@attrs.frozen(kw_only=True, field_transformer=in_place)
class FleetOptions(TimingOptions):
    """Options of runners that measure on many devices; every duration is in seconds."""

    threads: int = attrs.field(
        default=1,
        validator=validators.ge(1),
        metadata={
            **before("build_timeout"),
            "help": "threads a kernel runs with on a device's processor; GPUs ignore it",
        },
    )
    run_timeout: float = attrs.field(
        default=10.0,
        validator=validators.gt(0.0),
        metadata={
            **NOT_BINDING,
            "help": "longest load, check and timing of one candidate on a device in seconds",
        },
    )
    run_floor: float = attrs.field(
        default=4.0,
        validator=validators.gt(0.0),
        metadata={
            **NOT_BINDING,
            "help": "the deadline derived from the best time is never below this",
        },
    )
    connect_timeout: float = attrs.field(
        default=30.0,
        validator=validators.gt(0.0),
        metadata={
            **NOT_BINDING,
            **before("reference_timeout"),
            "help": "longest connection to a device, or self-test of one, in seconds",
        },
    )
    recycle_after: int = attrs.field(
        default=500,
        validator=validators.ge(1),
        metadata={
            **NOT_BINDING,
            **before("cold_bytes"),
            "help": "builds after which a worker is replaced by a fresh one",
        },
    )
    build_ahead: int = attrs.field(
        default=2,
        validator=validators.ge(1),
        metadata={**NOT_BINDING, "help": "built candidates per device that may wait for one"},
    )
    retries: int = attrs.field(
        default=2,
        validator=validators.ge(0),
        metadata={
            **NOT_BINDING,
            "help": "further tries, elsewhere, of a candidate that a device failed on",
        },
    )
    set_aside_after: int = attrs.field(
        default=3,
        validator=validators.ge(1),
        metadata={
            **NOT_BINDING,
            "help": "a device that fails so often in a row where others succeed is set aside",
        },
    )
    probe_after: float = attrs.field(
        default=1.0,
        validator=validators.gt(0.0),
        metadata={
            **NOT_BINDING,
            "help": "pause before a lost device is tried again, doubled each time",
        },
    )
    patience: float | None = attrs.field(
        default=_PATIENCE,
        validator=_not_negative,
        metadata={
            **NOT_BINDING,
            "help": "how long to wait for a device when none is left; null for ever",
        },
    )
    pace_tolerance: float | None = attrs.field(
        default=_PACE_TOLERANCE,
        validator=validators.optional(validators.gt(1.0)),
        metadata={
            "help": "a device whose times differ from the fleet's by more than this factor is "
            "named; null to compare none"
        },
    )
    pace_aside: bool = attrs.field(
        default=True,
        metadata={"help": "whether such a device is set aside as well, since times are compared"},
    )
    turn_seconds: float = attrs.field(
        default=0.006,
        validator=validators.gt(0.0),
        metadata={
            **NOT_BINDING,
            "help": "repeats of a contender's turn in the comparison fill this many seconds",
        },
    )


__all__ = ["FleetOptions"]

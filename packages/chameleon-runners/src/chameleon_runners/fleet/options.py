"""What every runner of a fleet can be told; importable without any numerical library."""

from __future__ import annotations

import attrs
from attrs import validators

from chameleon_runners.option_fields import in_place, option
from chameleon_runners.timing_options import TimingOptions

_PATIENCE: float | None = 600.0
_PACE_TOLERANCE: float | None = 1.25


def _not_negative(_: object, attribute: attrs.Attribute[float | None], value: float | None) -> None:
    if value is not None and value < 0.0:
        raise ValueError(f"'{attribute.name}' must be at least 0, not {value}")


@attrs.frozen(kw_only=True, field_transformer=in_place)
class FleetOptions(TimingOptions):
    """Options of runners that measure on many devices; every duration is in seconds."""

    threads: int = option(
        1,
        "threads a kernel runs with on a device's processor; GPUs ignore it",
        at_least=1,
        before="build_timeout",
    )
    run_timeout: float = option(
        10.0,
        "longest load, check and timing of one candidate on a device in seconds",
        binds=False,
        above=0.0,
    )
    run_floor: float = option(
        4.0, "the deadline derived from the best time is never below this", binds=False, above=0.0
    )
    connect_timeout: float = option(
        30.0,
        "longest connection to a device, or self-test of one, in seconds",
        binds=False,
        above=0.0,
        before="reference_timeout",
    )
    recycle_after: int = option(
        500,
        "builds after which a worker is replaced by a fresh one",
        binds=False,
        at_least=1,
        before="cold_bytes",
    )
    build_ahead: int = option(
        2, "built candidates per device that may wait for one", binds=False, at_least=1
    )
    retries: int = option(
        2,
        "further tries, elsewhere, of a candidate that a device failed on",
        binds=False,
        at_least=0,
    )
    set_aside_after: int = option(
        3,
        "a device that fails so often in a row where others succeed is set aside",
        binds=False,
        at_least=1,
    )
    probe_after: float = option(
        1.0, "pause before a lost device is tried again, doubled each time", binds=False, above=0.0
    )
    patience: float | None = option(
        _PATIENCE,
        "how long to wait for a device when none is left; null for ever",
        binds=False,
        check=_not_negative,
    )
    pace_tolerance: float | None = option(
        _PACE_TOLERANCE,
        "a device whose times differ from the fleet's by more than this factor is "
        "named; null to compare none",
        check=validators.optional(validators.gt(1.0)),
    )
    pace_aside: bool = option(
        True, "whether such a device is set aside as well, since times are compared"
    )
    turn_seconds: float = option(
        0.006,
        "repeats of a contender's turn in the comparison fill this many seconds",
        binds=False,
        above=0.0,
    )


__all__ = ["FleetOptions"]

"""Options that all fleet runners share. This module imports no numerical library."""

from __future__ import annotations

import attrs
from attrs import validators

from chameleon_runners.option_fields import duration, in_place, option, unbound
from chameleon_runners.timing_options import TimingOptions


@attrs.frozen(kw_only=True, field_transformer=in_place)
class FleetOptions(TimingOptions):
    """Options of runners that measure on many devices. All durations are in seconds."""

    threads: int = option(
        1,
        "threads a kernel runs with on a device's processor; GPUs ignore it",
        at_least=1,
        before="build_timeout",
    )
    run_timeout: float = duration(
        10.0, "longest load, check and timing of one candidate on a device in seconds"
    )
    run_floor: float = duration(4.0, "the deadline derived from the best time is never below this")
    connect_timeout: float = duration(
        30.0,
        "longest connection to a device, or self-test of one, in seconds",
        before="reference_timeout",
    )
    recycle_after: int = unbound(
        500,
        "builds after which a worker is replaced by a fresh one",
        at_least=1,
        before="cold_bytes",
    )
    build_ahead: int = unbound(2, "built candidates per device that may wait for one", at_least=1)
    retries: int = unbound(
        2, "further tries, elsewhere, of a candidate that a device failed on", at_least=0
    )
    set_aside_after: int = unbound(
        3, "a device that fails so often in a row while others succeed is set aside", at_least=1
    )
    probe_after: float = duration(
        1.0, "pause before a lost device is tried again, doubled each time"
    )
    patience: float | None = unbound(
        600.0,
        "how long to wait for a device when none is left; null for ever",
        check=validators.optional(validators.ge(0.0)),
    )
    pace_tolerance: float | None = option(
        1.25,
        "a device whose times differ from the fleet's by more than this factor is "
        "named; null to compare none",
        check=validators.optional(validators.gt(1.0)),
    )
    pace_aside: bool = option(
        True, "whether such a device is set aside as well, since times are compared"
    )
    turn_seconds: float = duration(
        0.006, "repeats of a contender's turn in the comparison fill this many seconds"
    )


__all__ = ["FleetOptions"]

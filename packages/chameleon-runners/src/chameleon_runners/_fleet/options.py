"""Options that all fleet runners share. This module imports no numerical library."""

from __future__ import annotations

import attrs
from attrs import validators

from chameleon_runners._option_fields import duration, in_place, option, unbound
from chameleon_runners._timing_options import TimingOptions


@attrs.frozen(kw_only=True, field_transformer=in_place)
class FleetOptions(TimingOptions):
    """Options of runners that measure on many devices. All durations are in seconds."""

    threads: int = option(
        1,
        "number of threads that a kernel runs with on a device's CPU; GPUs ignore it",
        at_least=1,
        before="build_timeout",
    )
    run_timeout: float = duration(
        10.0, "longest load, check and timing of one candidate on a device, in seconds"
    )
    run_floor: float = duration(
        4.0, "least time limit that is derived from the best time, in seconds"
    )
    connect_timeout: float = duration(
        30.0,
        "longest connection to a device, or self-test of one, in seconds",
        before="reference_timeout",
    )
    recycle_after: int = unbound(
        500,
        "number of builds after which a worker is replaced by a new one",
        at_least=1,
        before="cold_bytes",
    )
    build_ahead: int = unbound(
        2, "number of built candidates per device that may wait for a device", at_least=1
    )
    retries: int = unbound(
        2,
        "number of further tries, on other devices, of a candidate that failed on a device",
        at_least=0,
    )
    set_aside_after: int = unbound(
        3,
        "number of failures in a row, of candidates that succeed on other devices, after "
        "which a device is set aside",
        at_least=1,
    )
    probe_after: float = duration(
        1.0, "pause in seconds before a lost device is tried again; it doubles each time"
    )
    patience: float | None = unbound(
        600.0,
        "longest wait in seconds while no device works; null: without limit",
        check=validators.optional(validators.ge(0.0)),
    )
    pace_tolerance: float | None = option(
        1.25,
        "factor by which a device's times may differ from the fleet's median device before "
        "a warning; null: no comparison",
        check=validators.optional(validators.gt(1.0)),
    )
    pace_aside: bool = option(
        True, "also set aside a device beyond `pace_tolerance`, since its times are not comparable"
    )
    turn_seconds: float = duration(
        0.006, "seconds that the repeats of a contender's turn in the comparison fill"
    )

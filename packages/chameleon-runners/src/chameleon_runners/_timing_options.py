"""Options of building and timing that all runners share. This module imports no timing code."""

from __future__ import annotations

import attrs

from chameleon_runners._option_fields import duration, option, unbound


@attrs.frozen(kw_only=True)
class TimingOptions:
    """Options of building and timing that all runners share. All durations are in seconds."""

    workers: int | None = unbound(
        None, "number of worker processes that build; null: one per usable core", at_least=1
    )
    build_timeout: float = duration(30.0, "longest build in seconds")
    build_floor: float = duration(
        10.0, "least time limit that is derived from earlier builds, in seconds"
    )
    run_timeout: float = duration(10.0, "longest check and timing of one candidate in seconds")
    run_floor: float = duration(
        2.0, "least time limit that is derived from the best time, in seconds"
    )
    run_factor: float = unbound(
        100.0, "factor on the best time from which the time limit of a run is derived", above=1.0
    )
    start_timeout: float = duration(
        120.0, "longest start of a worker, its imports included, in seconds"
    )
    reference_timeout: float = duration(
        300.0, "longest computation of the reference outputs in seconds"
    )
    memory_mib: int | None = unbound(
        None, "memory limit of a worker in MiB; null: a share of the machine's memory", at_least=64
    )
    cold_bytes: int | None = option(
        None,
        "bytes of copies of the weights to read in turns; 0: warm caches; null: as many as the "
        "network's weights, on this machine",
        at_least=0,
    )
    repeat_seconds: float = option(
        0.0005, "seconds that the runs of one repeat fill together", above=0.0
    )
    turn_seconds: float = option(
        0.006,
        "seconds that the repeats of a kernel's turn in the rounds fill; half in small batches",
        above=0.0,
    )
    min_repeats: int = option(6, "least number of repeats", at_least=1)
    max_repeats: int = option(24, "largest number of repeats before the rounds", at_least=1)
    spread: float = option(
        0.01,
        "relative distance within which the three fastest repeats must be to end timing",
        above=0.0,
    )
    # A busy process on one of two cores makes a kernel appear about twice as slow as it is.
    slow_factor: float = option(
        2.5,
        "factor by which a kernel must be slower than the best to get only one repeat",
        above=1.0,
    )
    compare_rounds: int = unbound(
        20, "number of turns of each contender in the final comparison", at_least=1
    )

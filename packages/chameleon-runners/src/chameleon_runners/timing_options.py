"""Options that all runners with builds and timing share. Imports no numerical library."""

from __future__ import annotations

import attrs

from chameleon_runners.option_fields import duration, option, unbound


@attrs.frozen(kw_only=True)
class TimingOptions:
    """Options of building and timing that all runners share. All durations are in seconds."""

    workers: int | None = unbound(
        None, "worker processes that build; one per usable core if not given", at_least=1
    )
    build_timeout: float = duration(30.0, "longest build in seconds, counted from its start")
    build_floor: float = duration(
        10.0, "the deadline derived from earlier builds is never below this"
    )
    run_timeout: float = duration(10.0, "longest check and timing of one candidate in seconds")
    run_floor: float = duration(2.0, "the deadline derived from the best time is never below this")
    run_factor: float = unbound(
        100.0, "kernels slower than the best by this factor run into the deadline", above=1.0
    )
    start_timeout: float = duration(
        120.0, "longest start of a worker, its imports included, in seconds"
    )
    reference_timeout: float = duration(
        300.0, "longest computation of the reference outputs in seconds"
    )
    memory_mib: int | None = unbound(
        None, "memory limit of a worker in MiB; a share of the machine's if absent", at_least=64
    )
    cold_bytes: int = option(
        0,
        "bytes touched between runs, so that weights come from memory; 0 for hot caches",
        at_least=0,
    )
    repeat_seconds: float = option(
        0.0005, "a repeat averages over as many runs as fill this many seconds", above=0.0
    )
    turn_seconds: float = option(
        0.006, "repeats of a kernel's turn in the rounds fill this many seconds", above=0.0
    )
    min_repeats: int = option(6, "repeats at least", at_least=1)
    max_repeats: int = option(24, "repeats at most", at_least=1)
    spread: float = option(
        0.01, "repeats end once three agree with the fastest this closely", above=0.0
    )
    # A busy process on one of two cores makes a kernel appear about twice as slow as it is.
    slow_factor: float = option(
        2.5, "one repeat is enough for kernels slower than the best by this factor", above=1.0
    )
    compare_rounds: int = unbound(20, "turns of each contender in the final comparison", at_least=1)


__all__ = ["TimingOptions"]

"""Options of the runner ``local``. This module imports no numerical library."""

from __future__ import annotations

import attrs

from chameleon_runners._option_fields import in_place, option, unbound
from chameleon_runners._timing_options import TimingOptions


@attrs.frozen(kw_only=True, field_transformer=in_place)
class LocalOptions(TimingOptions):
    """Options of the runner ``local``. All durations are in seconds."""

    threads: int | None = option(
        None,
        "number of threads that a kernel runs with; null: one per usable core",
        at_least=1,
        before="workers",
    )
    ahead: int = unbound(
        0,
        "number of a task's first configurations to finish before the others are built",
        at_least=0,
        before="cold_bytes",
    )
    build_ahead: int = unbound(
        8, "largest number of built kernels that wait in a worker to be timed", at_least=1
    )
    recycle_after: int = unbound(
        500, "number of builds after which a worker is replaced by a new one", at_least=1
    )
    recycle_growth_mib: int = unbound(
        1024, "growth of a worker's memory, in MiB, after which the worker is replaced", at_least=1
    )
    retries: int = unbound(
        2,
        "number of further tries of a candidate whose worker was killed or ran out of memory",
        at_least=0,
    )
    clock: bool = option(
        True,
        "whether to time known work beside kernels, and to scale times to the usual speed",
        before="compare_rounds",
    )
    leader_margin: float = option(
        0.05,
        "largest relative distance from the best time of kernels that stay in the rounds",
        at_least=0.0,
        before="compare_rounds",
    )
    leader_spread: float = option(
        0.005,
        "relative distance within which a kernel's three fastest repeats must be to end its rounds",
        above=0.0,
    )
    leaders: int = option(
        16, "largest number of kernels of a batch that are timed again in rounds", at_least=0
    )
    leader_rounds: int = option(24, "largest number of rounds", at_least=1)

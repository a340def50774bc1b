"""Options of the runner ``local``. This module imports no numerical library."""

from __future__ import annotations

import attrs

from chameleon_runners.option_fields import in_place, option, unbound
from chameleon_runners.timing_options import TimingOptions


@attrs.frozen(kw_only=True, field_transformer=in_place)
class LocalOptions(TimingOptions):
    """Options of the runner ``local``. All durations are in seconds."""

    threads: int | None = option(
        None,
        "threads a kernel runs with; all usable cores if not given",
        at_least=1,
        before="workers",
    )
    ahead: int = unbound(
        1,
        "a task's first configurations, handed out before others are built",
        at_least=0,
        before="cold_bytes",
    )
    build_ahead: int = unbound(
        8, "built kernels a worker holds at most before they are timed", at_least=1
    )
    recycle_after: int = unbound(
        500, "builds after which a worker is replaced by a fresh one", at_least=1
    )
    recycle_growth_mib: int = unbound(
        1024, "growth of a worker's memory in MiB after which it is replaced", at_least=1
    )
    retries: int = unbound(
        2, "further tries of a candidate whose worker was killed from outside", at_least=0
    )
    leader_margin: float = option(
        0.05,
        "kernels this close to the best stay in the rounds",
        at_least=0.0,
        before="compare_rounds",
    )
    leader_spread: float = option(
        0.005, "rounds go on for kernels no three of whose repeats agree this closely", above=0.0
    )
    leaders: int = option(16, "kernels of a batch kept at most to be timed again", at_least=0)
    leader_rounds: int = option(24, "rounds at most", at_least=1)


__all__ = ["LocalOptions"]

"""Options of the schedulers. The module imports nothing else of the schedulers."""

from __future__ import annotations

import attrs

from chameleon_core.plugins.options import option


@attrs.frozen(kw_only=True)
class GradientOptions:
    """Options of the scheduler ``gradient``."""

    window: int = option(
        2, "a task's last batches, which tell what a further one may bring", at_least=1
    )
    stop_gain: float = option(
        0.002,
        "a task is left alone when the window's batches saved less than this share of the "
        "network's latency each; 0 spends the whole budget",
        at_least=0.0,
    )
    trust: float = option(
        0.2,
        "weight of what was saved lately against what might still be saved",
        at_least=0.0,
        at_most=1.0,
    )
    headroom: float = option(
        1.0,
        "nothing is hoped for from tasks that reach one part in so many of the operations per "
        "second of the fastest one",
        at_least=1.0,
    )

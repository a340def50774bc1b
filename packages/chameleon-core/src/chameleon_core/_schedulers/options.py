"""Options of the schedulers, in a module without other imports, so that it loads fast."""

from __future__ import annotations

import attrs

from chameleon_core._plugins.options import option


@attrs.frozen(kw_only=True)
class GradientOptions:
    """Options of the scheduler ``gradient``."""

    window: int = option(
        2, "number of a task's last batches that decide whether it is skipped", at_least=1
    )
    stop_gain: float = option(
        0.002,
        "a task is skipped if its last batches saved less than this share of the network's "
        "latency per batch; 0 for no such limit",
        at_least=0.0,
    )
    trust: float = option(
        0.5,
        "weight of a batch's gain against the gain expected before, from 0 to 1",
        at_least=0.0,
        at_most=1.0,
    )

"""Other tuners as rivals on recorded tables, and their options."""

from __future__ import annotations

from typing import Any

import attrs
from chameleon_core.plugin_api import option


@attrs.frozen(kw_only=True)
class KernelTunerOptions:
    """Options of the rival ``kernel-tuner``."""

    strategy: str = option(attrs.NOTHING, "name of Kernel Tuner's strategy, such as `pso`")
    strategy_options: dict[str, Any] = option(
        dict, "the strategy's own options, if not its defaults"
    )
    replay: dict[str, Any] = option(dict, "options of the runner `replay`, as the suite has them")

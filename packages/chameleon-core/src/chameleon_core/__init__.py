"""Chameleon's core: design spaces, contracts, plugins, pipelines and the tuning loop.

What programs use is exported here and imported when it is asked for (docs/python.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chameleon_core.lazy import lazily

if TYPE_CHECKING:
    from chameleon_core.api.asked import Asked
    from chameleon_core.api.callbacks import STOP
    from chameleon_core.api.design_space import design_space
    from chameleon_core.api.measurements import Measurements, Trial
    from chameleon_core.api.run import Operator, Run, load_run
    from chameleon_core.api.tune import Minimum, minimize, tune
    from chameleon_core.api.tuner import Tuner

# Worker processes import this package, too.
__getattr__ = lazily(
    __name__,
    {
        "api.asked": ("Asked",),
        "api.callbacks": ("STOP",),
        "api.design_space": ("design_space",),
        "api.measurements": ("Measurements", "Trial"),
        "api.run": ("Operator", "Run", "load_run"),
        "api.tune": ("Minimum", "minimize", "tune"),
        "api.tuner": ("Tuner",),
    },
)


def __dir__() -> list[str]:
    """What there is, also what was not asked for yet."""
    return sorted({*globals(), *__all__})


__all__ = [
    "STOP",
    "Asked",
    "Measurements",
    "Minimum",
    "Operator",
    "Run",
    "Trial",
    "Tuner",
    "design_space",
    "load_run",
    "minimize",
    "tune",
]

"""Chameleon's core: design spaces, contracts, plugins, pipelines and the tuning loop.

What programs use is exported here and imported when it is asked for (docs/python.md).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chameleon_core.api.asked import Asked
    from chameleon_core.api.callbacks import STOP
    from chameleon_core.api.design_space import design_space
    from chameleon_core.api.measurements import Measurements, Trial
    from chameleon_core.api.run import Operator, Run, load_run
    from chameleon_core.api.tune import Minimum, minimize, tune
    from chameleon_core.api.tuner import Tuner
else:

    def __getattr__(name: str) -> Any:
        """Import a name when it is asked for: worker processes import this package, too."""
        for module, names in _MODULES.items():
            if name in names:
                return getattr(importlib.import_module(f"{__name__}.api.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_MODULES = {
    "asked": ("Asked",),
    "callbacks": ("STOP",),
    "design_space": ("design_space",),
    "measurements": ("Measurements", "Trial"),
    "run": ("Operator", "Run", "load_run"),
    "tune": ("Minimum", "minimize", "tune"),
    "tuner": ("Tuner",),
}


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

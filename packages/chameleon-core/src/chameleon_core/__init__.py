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
    from chameleon_core.api.minimize import Minimum, minimize
    from chameleon_core.api.tuner import Tuner

_MODULES = {
    "asked": ("Asked",),
    "callbacks": ("STOP",),
    "design_space": ("design_space",),
    "measurements": ("Measurements", "Trial"),
    "minimize": ("Minimum", "minimize"),
    "tuner": ("Tuner",),
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: worker processes import this package, too."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.api.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "STOP",
    "Asked",
    "Measurements",
    "Minimum",
    "Trial",
    "Tuner",
    "design_space",
    "minimize",
]

"""Chameleon's core: design spaces, contracts, plugins, pipelines and the tuning loop.

The package exports Chameleon's Python interface (docs/python.md). Each name is imported when a
program first uses it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chameleon_core._api.exports import (
        STOP,
        Asked,
        Measurements,
        Minimum,
        Operator,
        Run,
        Trial,
        Tuner,
        design_space,
        load_run,
        minimize,
        tune,
    )


def __getattr__(name: str) -> Any:
    # Worker processes import this package, too.
    if name in __all__:
        return getattr(importlib.import_module(f"{__name__}.api.exports"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names in this package, also exported names that are not imported yet."""
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

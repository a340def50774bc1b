"""Chameleon's core: design spaces, contracts, plugins, pipelines and the tuning loop.

The package exports Chameleon's Python interface (docs/python.md). Each name is imported when a
program first uses it. The modules ``api`` and ``plugin_api`` have all public names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chameleon_system.api import lazy_exports

if TYPE_CHECKING:
    from chameleon_core._api.design_space import design_space
    from chameleon_core._api.measurements import Measurements, Trial
    from chameleon_core._api.run import Run, load_run
    from chameleon_core._api.tune import Minimum, minimize, tune
    from chameleon_core._api.tuner import STOP, Tuner
else:
    __all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)

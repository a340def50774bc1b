"""Names that ``chameleon_core`` exports (docs/python.md)."""

from chameleon_core.api.ask_store import Asked
from chameleon_core.api.design_space import design_space
from chameleon_core.api.measurements import Measurements, Trial
from chameleon_core.api.run import Operator, Run, load_run
from chameleon_core.api.tune import Minimum, minimize, tune
from chameleon_core.api.tuner import STOP, Tuner

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

"""Names that ``chameleon_core`` exports (docs/python.md)."""

from chameleon_core.api.asked import Asked
from chameleon_core.api.callbacks import STOP
from chameleon_core.api.design_space import design_space
from chameleon_core.api.measurements import Measurements, Trial
from chameleon_core.api.run import Operator, Run, load_run
from chameleon_core.api.tune import Minimum, minimize, tune
from chameleon_core.api.tuner import Tuner

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

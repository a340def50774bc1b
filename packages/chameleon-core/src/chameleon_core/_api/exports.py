"""Names that ``chameleon_core`` exports (docs/python.md)."""

from chameleon_core._api.ask_store import Asked
from chameleon_core._api.design_space import design_space
from chameleon_core._api.measurements import Measurements, Trial
from chameleon_core._api.run import Operator, Run, load_run
from chameleon_core._api.tune import Minimum, minimize, tune
from chameleon_core._api.tuner import STOP, Tuner

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

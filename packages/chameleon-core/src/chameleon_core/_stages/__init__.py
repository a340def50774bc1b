"""The contracts of all stages: abstract classes that plugins implement.

Each method names the exceptions that it may raise. A ``ChameleonError`` ends the run with its own
message and hint. Any other exception ends the run with a ``PluginError`` that names the stage. If
the build or run of one candidate raises an exception, this is a failed measurement instead.
"""

from chameleon_core._arrays import Arrays
from chameleon_core._stages.code import Baseline, Builder, Kernel, SpaceProvider
from chameleon_core._stages.disturbance import Disturbance
from chameleon_core._stages.frontend import Delivery, Frontend, TargetResolver
from chameleon_core._stages.jobs import ComparisonPlan, Contender, MeasureJob, StageRef
from chameleon_core._stages.record_database import RecordDatabase
from chameleon_core._stages.runner import Device, MeasureStream, Rival, Runner
from chameleon_core._stages.search import (
    Archive,
    Candidates,
    CostModel,
    Explorer,
    Observations,
    Sampler,
    Scores,
    StageContext,
    Synthesizer,
    Visited,
)

__all__ = [
    "Archive",
    "Arrays",
    "Baseline",
    "Builder",
    "Candidates",
    "ComparisonPlan",
    "Contender",
    "CostModel",
    "Delivery",
    "Device",
    "Disturbance",
    "Explorer",
    "Frontend",
    "Kernel",
    "MeasureJob",
    "MeasureStream",
    "Observations",
    "RecordDatabase",
    "Rival",
    "Runner",
    "Sampler",
    "Scores",
    "SpaceProvider",
    "StageContext",
    "StageRef",
    "Synthesizer",
    "TargetResolver",
    "Visited",
]

"""The contracts every plugin implements: for search, for code, for what measures it."""

from chameleon_core.stages.archive import Archive, TaskHistory
from chameleon_core.stages.device import Device
from chameleon_core.stages.hardware import (
    Arrays,
    Baseline,
    Builder,
    Delivery,
    Frontend,
    Kernel,
    SpaceProvider,
    TargetResolver,
    Winner,
)
from chameleon_core.stages.jobs import Contender, MeasureJob, StageRef
from chameleon_core.stages.observations import Observations
from chameleon_core.stages.rival import Rival, RivalTrace
from chameleon_core.stages.runner import Runner
from chameleon_core.stages.search import (
    Candidates,
    CostModel,
    Explorer,
    Sampler,
    ScoreFunction,
    Scores,
    StageContext,
    Synthesizer,
    Visited,
)
from chameleon_core.stages.streams import Arrival, MeasureStream
from chameleon_core.stages.trials import Trials

__all__ = [
    "Archive",
    "Arrays",
    "Arrival",
    "Baseline",
    "Builder",
    "Candidates",
    "Contender",
    "CostModel",
    "Delivery",
    "Device",
    "Explorer",
    "Frontend",
    "Kernel",
    "MeasureJob",
    "MeasureStream",
    "Observations",
    "Rival",
    "RivalTrace",
    "Runner",
    "Sampler",
    "ScoreFunction",
    "Scores",
    "SpaceProvider",
    "StageContext",
    "StageRef",
    "Synthesizer",
    "TargetResolver",
    "TaskHistory",
    "Trials",
    "Visited",
    "Winner",
]

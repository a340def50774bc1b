"""The contracts every plugin implements: one module for search, one for hardware."""

from chameleon_core.stages.archive import Archive, TaskHistory
from chameleon_core.stages.hardware import (
    Arrays,
    Baseline,
    Builder,
    Contender,
    Frontend,
    Kernel,
    MeasureJob,
    Runner,
    SpaceProvider,
    StageRef,
    TargetResolver,
)
from chameleon_core.stages.rival import Rival, RivalTrace
from chameleon_core.stages.search import (
    Candidates,
    CostModel,
    Explorer,
    Observations,
    Sampler,
    ScoreFunction,
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
    "Contender",
    "CostModel",
    "Explorer",
    "Frontend",
    "Kernel",
    "MeasureJob",
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
    "Visited",
]

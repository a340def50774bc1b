"""Events of a run: what happened, who is told, and the log of it."""

from chameleon_core.events.records import (
    BatchMeasured,
    BatchProposed,
    BestImproved,
    CheckFinished,
    CheckStarted,
    ComparisonStarted,
    Measured,
    RunFinished,
    RunStarted,
    TaskFinished,
    TaskSummary,
)

__all__ = [
    "BatchMeasured",
    "BatchProposed",
    "BestImproved",
    "CheckFinished",
    "CheckStarted",
    "ComparisonStarted",
    "Measured",
    "RunFinished",
    "RunStarted",
    "TaskFinished",
    "TaskSummary",
]

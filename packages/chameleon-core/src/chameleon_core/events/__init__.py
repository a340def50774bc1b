"""Events of a run: what happened, as plain data."""

from chameleon_core.events.records import (
    BatchMeasured,
    BatchProposed,
    BestImproved,
    CheckFinished,
    CheckStarted,
    ComparisonProgressed,
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
    "ComparisonProgressed",
    "ComparisonStarted",
    "Measured",
    "RunFinished",
    "RunStarted",
    "TaskFinished",
    "TaskSummary",
]

"""The tuning loop: ask and tell per task, scheduling, budgets, resuming, the final comparison."""

from chameleon_core.loop.interruption import Interruption, RunInterrupted
from chameleon_core.loop.result import OperatorResult, RunResult, VariantResult
from chameleon_core.loop.session import Session, run_pipeline
from chameleon_core.loop.stages import SearchStages
from chameleon_core.loop.tuner import TaskTuner

__all__ = [
    "Interruption",
    "OperatorResult",
    "RunInterrupted",
    "RunResult",
    "SearchStages",
    "Session",
    "TaskTuner",
    "VariantResult",
    "run_pipeline",
]

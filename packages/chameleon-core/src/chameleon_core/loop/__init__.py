"""The tuning loop: ``run`` is its sequence, in which ``tuning`` gives rounds to tasks."""

from chameleon_core.loop.end.operator_result import OperatorResult
from chameleon_core.loop.end.result import RunResult
from chameleon_core.loop.end.variants import VariantResult
from chameleon_core.loop.interruption import Interruption, RunInterrupted
from chameleon_core.loop.round.stages import SearchStages
from chameleon_core.loop.round.tuner import TaskTuner
from chameleon_core.loop.run import run_pipeline

__all__ = [
    "Interruption",
    "OperatorResult",
    "RunInterrupted",
    "RunResult",
    "SearchStages",
    "TaskTuner",
    "VariantResult",
    "run_pipeline",
]

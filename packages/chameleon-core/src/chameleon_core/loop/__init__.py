"""The tuning loop: ``run`` is its sequence, in which ``tuning`` gives rounds to tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chameleon_core.lazy import lazily

if TYPE_CHECKING:
    from chameleon_core.loop.end.result import OperatorResult, RunResult, VariantResult
    from chameleon_core.loop.interruption import Interruption, RunInterrupted
    from chameleon_core.loop.round.stages import SearchStages
    from chameleon_core.loop.round.tuner import TaskTuner
    from chameleon_core.loop.run import run_pipeline

__getattr__ = lazily(
    __name__,
    {
        "end.result": ("OperatorResult", "RunResult", "VariantResult"),
        "interruption": ("Interruption", "RunInterrupted"),
        "round.stages": ("SearchStages",),
        "round.tuner": ("TaskTuner",),
        "run": ("run_pipeline",),
    },
)

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

"""TVM's own untuned kernel: what compiling a network without a tuner runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar

from chameleon_core.plugins import NoOptions
from chameleon_core.stages import Baseline, Builder
from chameleon_core.task import Task

from chameleon_tvm.operators.base import is_operator


class UntunedBaseline(Baseline):
    """The operator's function, lowered by TVM's default pipeline without any schedule.

    TVM schedules nothing by default on a CPU: ``relax.build`` lowers every function as it was
    written, serial loops included. The same is done here, in the task's own layouts.
    """

    vendor: ClassVar[bool] = False

    def __init__(self, options: NoOptions) -> None:
        del options

    def supports(self, task: Task) -> bool:
        """Whether it is one of TVM's operators on a CPU; GPUs run nothing without a schedule."""
        return is_operator(task.operator) and _kind(task.target) == "llvm"

    def variants(self, task: Task) -> Sequence[str]:
        del task
        return ("default",)

    def builder(self, task: Task, variant: str, *, threads: int) -> Builder:
        del variant
        # Imports TVM, which only a worker process needs.
        from chameleon_tvm.baselines.unscheduled import UnscheduledBuilder  # noqa: PLC0415

        return UnscheduledBuilder(task, threads=threads)


def _kind(target: str) -> str:
    """The kind of a canonical target; empty for one that is not TVM's."""
    try:
        return str(json.loads(target)["kind"])
    except (ValueError, KeyError, TypeError):
        return ""

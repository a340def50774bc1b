"""TVM's untuned kernel: the kernel that TVM runs for an operator if no tuner is used."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar

from chameleon_core.plugin_api import Baseline, Builder, NoOptions, Task

from chameleon_tvm._operators.base import is_operator


class UntunedBaseline(Baseline):
    """The operator's function, compiled by TVM's default pipeline without a schedule.

    On a CPU, TVM schedules nothing by default: ``relax.build`` compiles every function as written,
    with serial loops. This baseline does the same, in the task's own layouts.
    """

    vendor: ClassVar[bool] = False

    def __init__(self, options: NoOptions) -> None:
        del options

    def supports(self, task: Task) -> bool:
        """Whether TVM can run the task without a schedule: a known operator on a CPU.

        A GPU runs nothing without a schedule.
        """
        return is_operator(task.operator) and _kind(task.target) == "llvm"

    def variants(self, task: Task) -> Sequence[str]:
        del task
        return ("default",)

    def builder(self, task: Task, variant: str, *, threads: int) -> Builder:
        del variant
        # Imports TVM, which only a worker process needs.
        from chameleon_tvm._baselines.unscheduled import UnscheduledBuilder  # noqa: PLC0415

        return UnscheduledBuilder(task, threads=threads)


def _kind(target: str) -> str:
    """The kind of a canonical target; empty if the string is not a target of TVM."""
    try:
        return str(json.loads(target)["kind"])
    except (ValueError, KeyError, TypeError):
        return ""

"""A schedule that MetaSchedule recorded, as a baseline in Chameleon's comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import attrs
from chameleon_core.plugin_api import Baseline, Builder, Task

from chameleon_tvm._building.builder import TVMBuilder
from chameleon_tvm._building.kernel import Program
from chameleon_tvm._instructions.tvm_intrinsics import load_tensor_intrinsics
from chameleon_tvm._operators.base import is_operator
from chameleon_tvm._rivals.timing import replay_trace


@attrs.frozen(kw_only=True)
class RecordedOptions:
    """Options of the baseline that builds a recorded schedule: its trace as JSON values."""

    trace: Any


class RecordedSchedule(Baseline):
    """The baseline that builds the kernel of a schedule that MetaSchedule found."""

    vendor: ClassVar[bool] = False

    def __init__(self, options: RecordedOptions) -> None:
        self._trace = options.trace

    def supports(self, task: Task) -> bool:
        return is_operator(task.operator)

    def variants(self, task: Task) -> Sequence[str]:
        del task
        return ("recorded",)

    def builder(self, task: Task, variant: str, *, threads: int) -> Builder:
        del variant
        return _RecordedBuilder(task, self._trace, threads=threads)


class _RecordedBuilder(TVMBuilder):
    def __init__(self, task: Task, trace: Any, *, threads: int) -> None:
        super().__init__(task, threads=threads)
        self._trace = trace

    def program(self, config: Sequence[int]) -> Program:
        del config
        load_tensor_intrinsics()  # the trace may use intrinsics
        return replay_trace(self.operator, self._trace)

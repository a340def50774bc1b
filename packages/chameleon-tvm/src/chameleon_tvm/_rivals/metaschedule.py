"""TVM's own tuner in this process: ``python -m chameleon_tvm._rivals.metaschedule``.

The tuner has the same conditions as Chameleon: number of threads, constants that it may pack, and a
main thread away from the workers' cores. Unless ``as_shipped`` is set, each of its builders imports
TVM's tensor intrinsics in two seconds instead of twenty.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs
from chameleon_core.plugin_api import Task
from chameleon_system.api import AnswerStream, read_requests, temporary_folder
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from chameleon_tvm._device.targets import tvm_target
from chameleon_tvm._instructions.tvm_intrinsics import load_tensor_intrinsics
from chameleon_tvm._metaschedule.traces import trace_json
from chameleon_tvm._opaque import plain_arithmetic
from chameleon_tvm._operators.base import operator_of
from chameleon_tvm._rivals.timing import pin_to_first_core
from chameleon_tvm._spaces.sketch.packing import layout_free

UNLIMITED_TRIALS = 1_000_000


class OutOfTimeError(Exception):
    """Ends MetaSchedule's tuner at a time limit, which MetaSchedule itself does not have."""


@attrs.define
class Progress:
    """The progress of MetaSchedule's tuner, shared by its callback and the code that starts it.

    Attributes:
        started: Time at which the tuner was started, in seconds since the epoch.
        wall_seconds: Seconds after which the tuner must stop; 0 for no limit.
        weights: Number of times that each task occurs.
        history: For every batch, its end in seconds since the start, the number of trials, and the
            best seconds so far.
        best: Best seconds by MetaSchedule's clock, by task number, for tasks that have a time.
    """

    started: float
    wall_seconds: float
    weights: Sequence[float] = (1.0,)
    history: list[dict[str, float | None]] = attrs.field(factory=list)
    trials: int = 0
    failed: int = 0
    best: dict[int, float] = attrs.field(factory=dict)
    expired: bool = False

    @property
    def best_seconds(self) -> float | None:
        """The weighted sum of the tasks' best times in seconds; None if a task has no time yet."""
        if len(self.best) < len(self.weights):
            return None
        return sum(weight * self.best[task] for task, weight in enumerate(self.weights))

    def add(self, task: int, results: Any) -> None:
        """Count the results of a batch of one task."""
        for result in results:
            self.trials += 1
            if result.error_msg is not None or not result.run_secs:
                self.failed += 1
                continue
            times = [float(seconds) for seconds in result.run_secs]
            self.best[task] = min(self.best.get(task, math.inf), sum(times) / len(times))
        elapsed = time.time() - self.started
        self.history.append(
            {"seconds": elapsed, "trials": self.trials, "best_seconds": self.best_seconds}
        )
        self.expired = bool(self.wall_seconds) and elapsed >= self.wall_seconds


@derived_object
class ProgressCallback(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
    """Records progress after every batch, and stops the tuner at its time limit."""

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self.progress = progress

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Any,
        builder_results: Any,
        runner_results: Any,
    ) -> None:
        """Record the results of a batch.

        Raises:
            OutOfTimeError: The time limit has passed.
        """
        del task_scheduler, measure_candidates, builder_results
        self.progress.add(task_id, runner_results)
        if self.progress.expired:
            raise OutOfTimeError


def builder_and_runner(threads: int, *, adapted: bool) -> dict[str, Any]:
    """MetaSchedule's local builder and runner, as arguments of its tuning functions."""
    return {
        "builder": ms.builder.LocalBuilder(
            max_workers=threads, initializer=load_tensor_intrinsics if adapted else None
        ),
        "runner": ms.runner.LocalRunner(initializer=pin_to_first_core if adapted else None),
    }


def tune(request: dict[str, Any], folder: str) -> dict[str, Any]:
    """Run MetaSchedule's tuner ``ms.tune_tir`` on a task, and return times and the best kernel."""
    task = Task(**request["task"])
    operator = operator_of(task)
    function = layout_free(plain_arithmetic(operator.prim_func()), operator.constants)
    target = tvm_target(task.target)
    threads = int(request["threads"])
    adapted = not request["as_shipped"]
    started = float(request["launched"])
    if adapted:
        load_tensor_intrinsics()
    progress = Progress(started=started, wall_seconds=float(request["wall_seconds"]))
    database = ms.database.MemoryDatabase()
    try:
        ms.tune_tir(
            mod=function,
            target=target,
            work_dir=folder,
            max_trials_global=int(request["trials"]) or UNLIMITED_TRIALS,
            **builder_and_runner(threads, adapted=adapted),
            database=database,
            measure_callbacks=[ms.measure_callback.AddToDatabase(), ProgressCallback(progress)],
            num_tuning_cores=threads,
            seed=int(request["seed"]) + 1,
        )
    except Exception:  # TVM's FFI turns the callback's exception into one of its own.
        if not progress.expired:
            raise
    elapsed = time.time() - started
    answer: dict[str, Any] = {
        "seconds": elapsed,
        "trials": progress.trials,
        "failed": progress.failed,
        "history": progress.history,
        "best_seconds": progress.best_seconds,
        "trace": None,
    }
    module = ms.tune_context._normalize_mod(function)  # noqa: SLF001 - as MetaSchedule does
    record = database.query_tuning_record(module, target, "main")
    if record is not None:
        answer["trace"] = trace_json(record.trace)
    return answer


def main(tuned: Callable[[dict[str, Any], str], dict[str, Any]]) -> None:
    """Tune as the parent process asks, and send it the answer."""
    answers, request = AnswerStream(), next(read_requests())
    with temporary_folder() as folder:
        answers.send(tuned(request, folder))


if __name__ == "__main__":
    main(tune)

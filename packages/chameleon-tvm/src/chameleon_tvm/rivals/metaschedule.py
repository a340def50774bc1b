"""TVM's own tuner in this process: ``python -m chameleon_tvm.rivals.metaschedule``.

It gets what our tuner gets: the number of threads, constant inputs it may pack, a main thread
that is kept off TVM's workers' cores; and, unless ``as_shipped``, an import of TVM's tensor
intrinsics that takes two seconds instead of twenty in every one of its builders.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from chameleon_core.task import Task
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from chameleon_tvm.kernel import TVMKernel
from chameleon_tvm.operators import operator_of
from chameleon_tvm.rivals.timing import (
    median_seconds,
    pin_to_first_core,
    relative_error,
    replayed_program,
)
from chameleon_tvm.spaces.sketch.intrinsics import load_tensor_intrinsics
from chameleon_tvm.spaces.sketch.rewriting import layout_free
from chameleon_tvm.targets import tvm_target

_UNLIMITED_TRIALS = 1_000_000


class _OutOfTimeError(Exception):
    """Raised in a callback: the only way to stop ``tune_tir`` on the clock."""


@derived_object
class _Watch(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
    """Records progress after every batch and stops the tuner on the clock."""

    def __init__(self, started: float, wall_seconds: float) -> None:
        super().__init__()
        self.started = started
        self.wall_seconds = wall_seconds
        self.history: list[dict[str, float | None]] = []
        self.trials = 0
        self.failed = 0
        self.best = float("inf")

    def apply(  # noqa: D102, PLR0917 - TVM's contract
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Any,
        builder_results: Any,
        runner_results: Any,
    ) -> None:
        del task_scheduler, task_id, measure_candidates, builder_results
        for result in runner_results:
            self.trials += 1
            if result.error_msg is not None or not result.run_secs:
                self.failed += 1
                continue
            times = [float(seconds) for seconds in result.run_secs]
            self.best = min(self.best, sum(times) / len(times))
        passed = time.monotonic() - self.started
        best = self.best if self.best < float("inf") else None
        self.history.append({"seconds": passed, "trials": self.trials, "best_seconds": best})
        if self.wall_seconds and passed >= self.wall_seconds:
            raise _OutOfTimeError


def tune(request: dict[str, Any], folder: str) -> dict[str, Any]:
    """Run ``ms.tune_tir`` as a request says.

    Args:
        request: see ``launch.tune_with_metaschedule``.
        folder: its working directory.
    """
    task = Task(**request["task"])
    operator = operator_of(task)
    function = layout_free(operator.prim_func(), operator.constants)
    target = tvm_target(task.target)
    threads = int(request["threads"])
    mended = not request["as_shipped"]
    started = time.monotonic()
    if mended:
        load_tensor_intrinsics()
    watch = _Watch(started, float(request["wall_seconds"]))
    database = ms.database.MemoryDatabase()
    try:
        ms.tune_tir(
            mod=function,
            target=target,
            work_dir=folder,
            max_trials_global=int(request["trials"]) or _UNLIMITED_TRIALS,
            builder=ms.builder.LocalBuilder(
                max_workers=threads, initializer=load_tensor_intrinsics if mended else None
            ),
            runner=ms.runner.LocalRunner(initializer=pin_to_first_core if mended else None),
            database=database,
            measure_callbacks=[ms.measure_callback.AddToDatabase(), watch],
            num_tuning_cores=threads,
            seed=int(request["seed"]) + 1,
        )
    except Exception as error:
        # TVM passes a callback's exception through its FFI, perhaps as one of its own.
        if "_OutOfTimeError" not in f"{type(error).__name__}: {error}":
            raise
    passed = time.monotonic() - started
    answer: dict[str, Any] = {
        "seconds": passed,
        "trials": watch.trials,
        "failed": watch.failed,
        "history": watch.history,
        "best_seconds": watch.best if watch.best < float("inf") else None,
        "trace": None,
        "kernel_seconds": None,
        "kernel_error": None,
    }
    module = ms.tune_context._normalize_mod(function)  # noqa: SLF001 - as MetaSchedule does
    record = database.query_tuning_record(module, target, "main")
    if record is not None:
        answer["trace"] = json.loads(_as_json(record.trace))
        pin_to_first_core()
        kernel = TVMKernel(replayed_program(task, answer["trace"]), task.target)
        answer["kernel_error"] = relative_error(kernel, task)
        answer["kernel_seconds"] = median_seconds(kernel)
    return answer


def _as_json(trace: Any) -> str:
    def plain(value: Any) -> Any:
        if isinstance(value, str | bytes):
            return str(value)
        if isinstance(value, int | float | bool) or value is None:
            return value
        if hasattr(value, "items"):
            return {str(key): plain(entry) for key, entry in value.items()}
        if hasattr(value, "__iter__"):
            return [plain(entry) for entry in value]
        return int(value) if "Int" in type(value).__name__ else float(value)

    return json.dumps(plain(trace.as_json()))


def main(asked: str, answered: str) -> None:
    """Do what a request says and write the answer."""
    request = json.loads(Path(asked).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="chameleon-metaschedule-") as folder:
        answer = tune(request, folder)
    Path(answered).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

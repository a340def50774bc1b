"""TVM's MetaSchedule as a rival in ``chameleon bench``. This module does not import TVM."""

from __future__ import annotations

from chameleon_core.plugin_api import ConfigError, Rival, Task
from chameleon_system.api import usable_cores

from chameleon_tvm._rivals.launch import tune_with_metaschedule
from chameleon_tvm._rivals.options import MetaScheduleOptions


class MetaSchedule(Rival):
    """TVM's tuner MetaSchedule as a rival, in its own process."""

    def __init__(self, options: MetaScheduleOptions) -> None:
        self._options = options

    def tune(
        self, task: Task, *, measurements: int | None, wall_seconds: float | None, seed: int
    ) -> Rival.Trace:
        """Tune a task with MetaSchedule; the trace has a point for the end of each batch.

        All points are scaled so that the last one equals Chameleon's time of the best kernel,
        because
        the two ways of timing warm up differently.

        Raises:
            ConfigError: The task is a recorded table, which MetaSchedule cannot tune.
            ChameleonError: MetaSchedule's process failed.
        """
        if task.location:
            raise ConfigError(
                f"MetaSchedule cannot tune {task.name!r}, which is a recorded table",
                hint="use MetaSchedule in suites whose tasks are operators or models",
            )
        answer = tune_with_metaschedule(
            task,
            threads=self._options.threads or len(usable_cores()),
            wall_seconds=wall_seconds or 0.0,
            trials=measurements or 0,
            as_shipped=self._options.as_shipped,
            seed=seed,
        )
        own_seconds, reported_seconds = answer["kernel_seconds"], answer["best_seconds"]
        scale = own_seconds / reported_seconds if own_seconds and reported_seconds else 1.0
        points = answer["history"]
        return Rival.Trace(
            at_seconds=tuple(point["seconds"] for point in points),
            measurements=tuple(point["trials"] for point in points),
            best_seconds=tuple(
                float("inf") if point["best_seconds"] is None else point["best_seconds"] * scale
                for point in points
            ),
            failed=answer["failed"],
            final_seconds=own_seconds,
            details={
                "wall_seconds": answer["seconds"],
                "own_best_seconds": reported_seconds,
                "failed": answer["failed"],
                "as_shipped": self._options.as_shipped,
                # ``recorded.RecordedSchedule`` compares the winner again with it.
                "trace": answer["trace"],
            },
        )

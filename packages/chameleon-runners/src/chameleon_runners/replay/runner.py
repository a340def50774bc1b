"""The runner ``replay``, which takes measurements from recorded tables, on a simulated clock."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import attrs
import numpy as np
from chameleon_core.measurement import FailureKind, Measurement
from chameleon_core.stages import Contender, MeasureJob, Runner
from chameleon_core.task import Task

from chameleon_runners.replay.options import Noise, ReplayOptions
from chameleon_runners.replay.reading import table_of_task
from chameleon_runners.replay.table import Table


class ReplayRunner(Runner):
    """Looks up the measurements of configurations in a task's recorded table.

    Configurations are looked up one after the other, as Kernel Tuner measures them. Each look-up
    adds the recorded seconds of compiling and benchmarking to the runner's clock.

    Args:
        options: How measurements are made from the recorded repeats.
    """

    measures_hardware: ClassVar[bool] = False

    def __init__(self, options: ReplayOptions) -> None:
        self._options = options
        self._replayed = 0.0
        self._stopped = False
        self._tables: dict[str, Table] = {}

    @property
    def batch_size(self) -> int:
        # One is measured after the other, so nothing waits; but asking costs the search's seconds.
        return 4

    def now(self) -> float:
        """Real time plus the recorded durations of all replayed measurements, in seconds."""
        return time.perf_counter() + self._replayed

    def measure(self, job: MeasureJob) -> Iterator[Measurement]:
        table = self._table(job.task)
        for config in job.configs:
            if self._stopped:
                return
            measurement = self._look_up(table, tuple(config))
            self._replayed += measurement.build_seconds + measurement.run_seconds
            yield measurement

    def compare(self, task: Task, contenders: Sequence[Contender]) -> list[Measurement]:
        """The recorded measurements of the contenders, with all repeats and no noise.

        A contender that is not in the table, such as a baseline, gets an invalid measurement.

        Args:
            task: The task.
            contenders: The contenders.
        """
        table = self._table(task)
        return [
            table.measurement(tuple(contender.config))
            if contender.config
            else Measurement(
                config=(),
                failure=FailureKind.INVALID,
                message=f"{contender.name} was not recorded in the table {table.name!r}",
            )
            for contender in contenders
        ]

    def describe(self) -> dict[str, Any]:
        return {"device": "recorded tables", "noise": self._options.noise.value}

    def best_known(self, task: Task) -> float | None:
        """The lowest cost in the task's table in seconds; None if every row failed.

        Args:
            task: The task.
        """
        best = self._table(task).best_seconds
        return best if math.isfinite(best) else None

    def interrupt(self) -> None:
        self._stopped = True

    def _table(self, task: Task) -> Table:
        table = self._tables.get(task.key)
        if table is None:
            table = self._tables[task.key] = table_of_task(task)
        return table

    def _look_up(self, table: Table, config: tuple[int, ...]) -> Measurement:
        measurement = table.measurement(config)
        if self._options.noise is Noise.NONE or not measurement.ok:
            return measurement
        # Seeded by what is measured: neither the order of a batch nor another draw matters.
        rng = np.random.default_rng([self._options.seed, int(table.digest[:8], 16), *config])
        return attrs.evolve(
            measurement,
            seconds=tuple(rng.choice(measurement.seconds, self._options.draws).tolist()),
        )

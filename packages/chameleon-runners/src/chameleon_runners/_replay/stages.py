"""The stages that replay recorded tables: frontend, space, and a runner on a simulated clock."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs
import numpy as np
from chameleon_core.plugin_api import (
    Builder,
    ConfigError,
    Contender,
    DesignSpace,
    FailureKind,
    Frontend,
    MeasureJob,
    Measurement,
    NoOptions,
    Runner,
    SpaceProvider,
    Task,
)

from chameleon_runners._replay.options import Noise, ReplayOptions, Statistic, TableOptions
from chameleon_runners._replay.readers import OPERATOR, table_of_task, tables_at
from chameleon_runners._replay.table import Table


class TableSpace(SpaceProvider):
    """Design spaces of recorded tables."""

    def __init__(self, options: NoOptions) -> None:
        del options

    def design_space(self, task: Task) -> DesignSpace:
        return table_of_task(task).space()

    def builder(self, task: Task, *, threads: int) -> Builder:
        del threads
        raise ConfigError(
            f"task {task.name!r} is a recorded table, which holds no code to build",
            hint="write `runner: replay`",
        )


_TARGET = "recorded"
"""The target of every recorded task, since the records are the same on every machine."""


class TableFrontend(Frontend):
    """Makes one task per recorded table."""

    def __init__(self, options: TableOptions) -> None:
        paths = options.paths
        self._paths = (paths,) if isinstance(paths, str) else paths

    def check_source(self) -> None:
        for path in self._paths:
            if not Path(path).exists():
                tables_at(path)

    def tasks(self, target: str) -> list[Task]:
        """Make a task for each recorded table; ``target`` is ignored.

        A task's arguments identify its table by the content only, so that a search does not depend
        on the table's folder.
        """
        del target
        tables = [(path, table) for path in self._paths for table in tables_at(path)]
        names: set[str] = set()
        tasks = []
        for path, table in tables:
            name, number = table.name, 1
            while name in names:
                number += 1
                name = f"{table.name}-{number}"
            names.add(name)
            tasks.append(
                Task(
                    name=name,
                    operator=OPERATOR,
                    arguments={"table": table.name, "digest": table.digest},
                    target=_TARGET,
                    flop=table.flop,
                    location=path,
                )
            )
        return tasks


class ReplayRunner(Runner):
    """Looks up the measurements of configurations in a task's recorded table."""

    measures_hardware: ClassVar[bool] = False

    def __init__(self, options: ReplayOptions) -> None:
        self._options = options
        # The cost of a few repeats is their median.
        self._medians = options.statistic is Statistic.MEDIAN or options.noise is Noise.REPEATS
        self._replayed_seconds = 0.0
        self._stopped = False
        self._tables: dict[str, Table] = {}

    @property
    def batch_size(self) -> int:
        # Small, but not 1, because each round of a search takes time.
        return 4

    def now(self) -> float:
        """Real time plus the recorded durations of all replayed measurements, in seconds."""
        return time.perf_counter() + self._replayed_seconds

    def measure(self, job: MeasureJob) -> Iterator[Measurement]:
        table = self._table(job.task)
        for config in job.configs:
            if self._stopped:
                return
            measurement = self._replay(table, tuple(config))
            self._replayed_seconds += measurement.build_seconds + measurement.run_seconds
            yield measurement

    def compare(self, task: Task, contenders: Sequence[Contender]) -> list[Measurement]:
        """The recorded measurements of the contenders, without noise."""
        table = self._table(task)
        return [
            table.measurement(tuple(contender.config), repeats=self._medians)
            if contender.config
            else Measurement(
                config=(),
                failure=FailureKind.INVALID,
                message=f"{contender.name} was not recorded in the table {table.name!r}",
            )
            for contender in contenders
        ]

    def describe(self) -> dict[str, Any]:
        options = self._options
        return {
            "device": "recorded tables",
            "statistic": (Statistic.MEDIAN if self._medians else Statistic.RECORDED).value,
            "noise": options.noise.value,
        }

    def best_known(self, task: Task) -> float | None:
        """The lowest cost in the task's table in seconds; None if every row failed."""
        table = self._table(task)
        best = float((table.medians if self._medians else table.recorded).min())
        return best if math.isfinite(best) else None

    def interrupt(self) -> None:
        self._stopped = True

    def _table(self, task: Task) -> Table:
        table = self._tables.get(task.key)
        if table is None:
            table = self._tables[task.key] = table_of_task(task)
        return table

    def _replay(self, table: Table, config: tuple[int, ...]) -> Measurement:
        measurement = table.measurement(config, repeats=self._medians)
        if self._options.noise is Noise.NONE or not measurement.ok:
            return measurement
        # The seed depends on the configuration, so that the order of measurements does not matter.
        rng = np.random.default_rng([self._options.seed, int(table.digest[:8], 16), *config])
        return attrs.evolve(
            measurement,
            seconds=tuple(rng.choice(measurement.seconds, self._options.draws).tolist()),
        )

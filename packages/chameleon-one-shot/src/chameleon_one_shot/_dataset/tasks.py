"""The content of a data set: tasks with their measured candidates; files with tasks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core.api import check_tasks
from chameleon_core.plugin_api import ConfigError, Frontend, Task
from chameleon_system.api import write_atomic
from numpy.typing import NDArray

from chameleon_one_shot._dataset.task_options import TasksOptions


class DatasetError(ConfigError):
    """A data set cannot be read or used; the message names the wrong file."""


def canonical(value: Any) -> str:
    """A JSON value as a string that does not depend on the order of keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


@attrs.frozen(kw_only=True, eq=False)
class DatasetTask:
    """The n measured candidates of one task on one device, as a part of a data set.

    Attributes:
        task: the task, whose name is made from its key.
        device: the description of the device, as from ``TargetResolver.describe``.
        threads: the number of threads that kernels ran with; 0 if unknown.
        space: the name of the space provider; empty if there is none.
        space_options: the options of the space provider, as JSON values.
        fingerprint: the fingerprint of the design space; empty if there is none.
        versions: the versions of the distributions that took part, as far as known.
        source: the name of the collection, or of the source of an import.
        configs: the knob indices, int32 of shape (n, knobs). None if the space is unknown.
        choices: the knob values of each candidate, by knob name.
        seconds: the time of each candidate, float64 of shape (n,), infinity for failures.
        failures: the kind of failure of each candidate, or None.
        origins: the stage that proposed each candidate, or None.
        measured_at: the time of each measurement in seconds since 1970, float64 of shape (n,); 0 if
            unknown.
    """

    task: Task
    device: Mapping[str, Any] = attrs.field(factory=dict)
    threads: int = 0
    space: str = ""
    space_options: Mapping[str, Any] = attrs.field(factory=dict)
    fingerprint: str = ""
    versions: Mapping[str, str | None] = attrs.field(factory=dict)
    source: str
    configs: NDArray[np.int32] | None = None
    choices: Sequence[Mapping[str, Any]]
    seconds: NDArray[np.float64]
    failures: Sequence[str | None]
    origins: Sequence[str | None] = attrs.field()
    measured_at: NDArray[np.float64] = attrs.field()

    @origins.default
    def _unknown_origins(self) -> Sequence[str | None]:
        return [None] * len(self)

    @measured_at.default
    def _unknown_times(self) -> NDArray[np.float64]:
        return np.zeros(len(self))

    def __len__(self) -> int:
        return len(self.choices)

    @property
    def group(self) -> tuple[str, str, int, str, str]:
        """A key of the task with its device, number of threads and design space."""
        digest = hashlib.sha256(canonical(dict(self.device)).encode()).hexdigest()[:16]
        return self.task.key, digest, self.threads, self.space, self.fingerprint

    def rows(self, keep: Sequence[int]) -> DatasetTask:
        """A copy of the task with a selection of its candidates."""
        at = np.asarray(keep, np.intp)
        return attrs.evolve(
            self,
            configs=None if self.configs is None else self.configs[at],
            choices=[self.choices[row] for row in keep],
            seconds=self.seconds[at],
            failures=[self.failures[row] for row in keep],
            origins=[self.origins[row] for row in keep],
            measured_at=self.measured_at[at],
        )


@attrs.frozen(kw_only=True, eq=False)
class Dataset:
    """The content of a data set, without duplicate candidates.

    Attributes:
        plan: The plan of the collection as JSON values, or None.
        duplicates: The number of duplicate candidates that were left out.
    """

    tasks: tuple[DatasetTask, ...]
    plan: Mapping[str, Any] | None = None
    duplicates: int = 0

    @property
    def candidates(self) -> int:
        """The number of measured candidates of all tasks, failures included."""
        return sum(map(len, self.tasks))


def merge_tasks(tasks: Iterable[DatasetTask]) -> tuple[tuple[DatasetTask, ...], int]:
    """Merge tasks of one group; return them and the number of duplicate candidates."""
    groups: dict[tuple[str, str, int, str, str], list[DatasetTask]] = {}
    for task in tasks:
        groups.setdefault(task.group, []).append(task)
    merged_tasks, dropped = [], 0
    for _, parts in sorted(groups.items()):
        combined = _concatenate(parts)
        first: dict[str, int] = {}
        for row, choice in enumerate(combined.choices):
            first.setdefault(canonical(choice), row)
        dropped += len(combined) - len(first)
        merged_tasks.append(
            combined if len(first) == len(combined) else combined.rows(list(first.values()))
        )
    return tuple(merged_tasks), dropped


def _concatenate(parts: Sequence[DatasetTask]) -> DatasetTask:
    if len(parts) == 1:
        return parts[0]
    configs = [part.configs for part in parts if part.configs is not None]
    return attrs.evolve(
        parts[0],
        # Without a known space, only the choices describe a candidate.
        configs=np.concatenate(configs) if len(configs) == len(parts) else None,
        choices=[choice for part in parts for choice in part.choices],
        seconds=np.concatenate([part.seconds for part in parts]),
        failures=[failure for part in parts for failure in part.failures],
        origins=[origin for part in parts for origin in part.origins],
        measured_at=np.concatenate([part.measured_at for part in parts]),
    )


def rename_by_key(task: Task) -> Task:
    """A copy of a task with weight 1 and a unique name, made from its operator and key."""
    name = f"{task.operator} {task.key[:12]}"
    return attrs.evolve(task, name=name, weight=1, alternative_of="")


def write_tasks(file: Path, tasks: Sequence[Task]) -> None:
    """Write tasks to a file that ``read_tasks`` reads."""
    write_atomic(file, json.dumps([task.to_json() for task in tasks], indent=1) + "\n")


def read_tasks(file: Path) -> list[Task]:
    """Read tasks from a file that ``write_tasks`` wrote."""
    try:
        return [Task(**value) for value in json.loads(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{file} holds no list of tasks: {error}",
            hint="Name a file that the collection of a data set wrote.",
        ) from error


class TasksFrontend(Frontend):
    """The frontend ``tasks``, which reads tasks from a file."""

    def __init__(self, options: TasksOptions) -> None:
        self._file = Path(options.file)
        self._trusted = options.trust_source
        end = None if options.count is None else options.start + options.count
        self._selection = slice(options.start, end)

    def tasks(self, target: str) -> list[Task]:
        tasks = read_tasks(self._file)[self._selection]
        others = sorted({task.target for task in tasks} - {target})
        if others:
            raise ConfigError(
                f"{self._file} holds tasks for target {others[0]}, not for {target}",
                hint="Collect on the machine that they are for, or draw tasks anew elsewhere.",
            )
        check_tasks(self._file, tasks, trust_source=self._trusted)
        return tasks

"""Files with tasks, and the frontend that tunes these tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from chameleon_core.api import check_tasks
from chameleon_core.plugin_api import ConfigError, Frontend, Task
from chameleon_system.api import write_atomic

from chameleon_one_shot._dataset.task_options import TasksOptions


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

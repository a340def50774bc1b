"""The frontend ``table``, which makes one task per recorded table."""

from __future__ import annotations

from pathlib import Path

from chameleon_core.stages import Frontend
from chameleon_core.task import Task

from chameleon_runners.replay.options import TableOptions
from chameleon_runners.replay.reading import OPERATOR, tables_at

_TARGET = "recorded"
"""The target of every recorded task, since the records are the same on every machine."""


class TableFrontend(Frontend):
    """Makes one task per recorded table. A run folder has one table per measured task.

    Args:
        options: The paths of the tables.
    """

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

        Args:
            target: Not used.

        Raises:
            ConfigError: A table is missing or cannot be read.
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

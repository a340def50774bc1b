"""The frontend ``table``: one task per recorded table."""

from __future__ import annotations

from pathlib import Path

from chameleon_core.stages import Frontend
from chameleon_core.task import Task

from chameleon_runners.replay.options import TableOptions
from chameleon_runners.replay.reading import OPERATOR, tables_at

_TARGET = "recorded"
"""Target of every recorded task: replaying it elsewhere changes nothing about the records."""


class TableFrontend(Frontend):
    """One task per table; a run folder gives one for each of its tasks.

    Args:
        options: where the tables are.
    """

    def __init__(self, options: TableOptions) -> None:
        paths = options.paths
        self._paths = (paths,) if isinstance(paths, str) else paths

    def check_source(self) -> None:
        for path in self._paths:
            if not Path(path).exists():
                tables_at(path)

    def tasks(self, target: str) -> list[Task]:
        """The tasks; ``target`` plays no part.

        The arguments identify a table by its content alone, so that a search does not depend on
        the folder it lies in.

        Raises:
            ConfigError: a table is missing or cannot be read.
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

"""The space provider ``table``, whose configurations are the rows of a recorded table."""

from __future__ import annotations

from chameleon_core.errors import ConfigError
from chameleon_core.plugins import NoOptions
from chameleon_core.space import DesignSpace
from chameleon_core.stages import Builder, SpaceProvider
from chameleon_core.task import Task

from chameleon_runners.replay.reading import table_of_task


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

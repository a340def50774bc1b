"""Options of the frontend ``tasks``. This module imports no numerical library."""

from __future__ import annotations

import attrs
from chameleon_core.plugin_api import option


@attrs.frozen(kw_only=True)
class TasksOptions:
    """Options of the frontend ``tasks``."""

    file: str = option(
        attrs.NOTHING,
        "a JSON file with a list of tasks, which the collection of a data set wrote",
        binds=False,
        path=True,
    )
    start: int = option(0, "number of tasks to leave out at the beginning of the list", at_least=0)
    count: int | None = option(None, "largest number of tasks; null: all", at_least=1, binds=False)
    trust_source: bool = option(
        False,
        "accept tasks with code (TensorIR functions and their references) and run it; only "
        "for files that you wrote or read",
        binds=False,
    )

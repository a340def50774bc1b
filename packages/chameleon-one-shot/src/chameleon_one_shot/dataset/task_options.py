"""Options of the frontend ``tasks``. This module imports no numerical library."""

from __future__ import annotations

import attrs
from chameleon_core.plugins.options import option


@attrs.frozen(kw_only=True)
class TasksOptions:
    """Options of the frontend ``tasks``."""

    file: str = option(
        attrs.NOTHING,
        "a JSON file with a list of tasks, as a data set's collection writes them",
        binds=False,
        path=True,
    )
    start: int = option(0, "tasks at the beginning of the list that are left out", at_least=0)
    count: int | None = option(
        None, "tasks after those at most; null for all", at_least=1, binds=False
    )
    trust_source: bool = option(
        False,
        "take tasks that carry code, TensorIR functions and their references, and run "
        "it; only if you wrote or read the file",
        binds=False,
    )

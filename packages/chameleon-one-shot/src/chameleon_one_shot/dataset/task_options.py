"""Options of the frontend ``tasks``, importable without any numerical library."""

from __future__ import annotations

import attrs
from chameleon_core.plugins.options import NOT_BINDING


@attrs.frozen(kw_only=True)
class TasksOptions:
    """Options of ``tasks``."""

    file: str = attrs.field(
        metadata={
            **NOT_BINDING,
            "help": "a JSON file with a list of tasks, as a data set's collection writes them",
            "path": True,
        }
    )

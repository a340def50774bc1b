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
    start: int = attrs.field(
        default=0,
        validator=attrs.validators.ge(0),
        metadata={"help": "tasks at the beginning of the list that are left out"},
    )
    count: int | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(attrs.validators.ge(1)),
        metadata={**NOT_BINDING, "help": "tasks after those at most; null for all"},
    )
    trust_source: bool = attrs.field(
        default=False,
        metadata={
            **NOT_BINDING,
            "help": "take tasks that carry code, TensorIR functions and their references, and run "
            "it; only if you wrote or read the file",
        },
    )

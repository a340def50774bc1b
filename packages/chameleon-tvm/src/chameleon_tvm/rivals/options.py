"""Options of the rivals, importable without TVM."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class MetaScheduleOptions:
    """Options of the rival ``metaschedule``."""

    as_shipped: bool = attrs.field(
        default=False,
        metadata={"help": "leave its import of 20 seconds in every builder as it is"},
    )
    threads: int | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(attrs.validators.ge(1)),
        metadata={"help": "threads of kernels and builders; every core by default"},
    )

"""Options of the rivals, which are checked before ``chameleon bench`` imports TVM."""

from __future__ import annotations

import attrs
from chameleon_core.plugin_api import option


@attrs.frozen(kw_only=True)
class MetaScheduleOptions:
    """Options of the rival ``metaschedule``."""

    as_shipped: bool = option(False, "keep the import of 20 seconds in each of its builders")
    threads: int | None = option(
        None, "threads of kernels and builders; every core by default", at_least=1
    )

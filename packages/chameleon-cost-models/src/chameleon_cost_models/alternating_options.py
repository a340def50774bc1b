"""Options of ``alternating``. Importing them imports no learning library."""

from __future__ import annotations

import attrs
from attrs import validators
from chameleon_core.pipeline.schema import StageSpec


@attrs.frozen(kw_only=True)
class AlternatingOptions:
    """Options of ``alternating``."""

    models: tuple[StageSpec | str, ...] = attrs.field(
        default=("mixed", "gaussian-process"),
        validator=validators.min_len(1),
        metadata={
            "stages": "cost_models",
            "help": "what takes turns, each a name or a mapping with a name and options",
        },
    )


__all__ = ["AlternatingOptions"]

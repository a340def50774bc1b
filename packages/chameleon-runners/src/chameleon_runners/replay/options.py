"""Options of the frontend ``table`` and the runner ``replay``, importable without numpy."""

from __future__ import annotations

from enum import StrEnum

import attrs
from attrs import validators


class Noise(StrEnum):
    """Which of the recorded repeats a replayed measurement consists of."""

    NONE = "none"
    REPEATS = "repeats"


@attrs.frozen(kw_only=True)
class TableOptions:
    """Options of the frontend ``table``."""

    paths: str | tuple[str, ...] = attrs.field(
        metadata={
            "path": True,
            "help": "a Kernel Tuner cache or T4 file (.json or .json.gz), or a run folder; or "
            "a list of them",
        }
    )


@attrs.frozen(kw_only=True)
class ReplayOptions:
    """Options of the runner ``replay``."""

    noise: Noise = attrs.field(
        default=Noise.NONE,
        metadata={
            "help": "none: all recorded repeats; repeats: a few drawn from them, as a "
            "shorter measurement would have seen"
        },
    )
    draws: int = attrs.field(
        default=3,
        validator=validators.ge(1),
        metadata={"help": "repeats drawn for each measurement where there is noise"},
    )
    seed: int = attrs.field(
        default=0,
        validator=validators.ge(0),
        metadata={"help": "seed of the noise; a configuration always gets the same draws"},
    )


__all__ = ["Noise", "ReplayOptions", "TableOptions"]

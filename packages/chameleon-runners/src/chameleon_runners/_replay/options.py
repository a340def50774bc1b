"""Options of the frontend ``table`` and the runner ``replay``. This module imports no numpy."""

from __future__ import annotations

from enum import StrEnum

import attrs

from chameleon_runners._option_fields import option


class Noise(StrEnum):
    """Which recorded repeats a replayed measurement has: all of them, or a random few."""

    NONE = "none"
    REPEATS = "repeats"


class Statistic(StrEnum):
    """Which number is the cost of a replayed measurement without noise."""

    RECORDED = "recorded"
    MEDIAN = "median"


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

    statistic: Statistic = option(
        Statistic.RECORDED,
        "recorded: the cost is the objective `time` as recorded; median: the median of the repeats",
    )
    noise: Noise = option(
        Noise.NONE,
        "none: no noise; repeats: draw a few of the repeats, whose median is the cost",
    )
    draws: int = option(
        3, "number of repeats to draw for each measurement with `noise: repeats`", at_least=1
    )
    seed: int = option(
        0, "seed of the noise; a configuration always gets the same draws", at_least=0
    )

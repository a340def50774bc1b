"""Contract of rivals: other tuners that ``chameleon bench`` holds pipelines against."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import attrs

from chameleon_core.task import Task


@attrs.frozen(kw_only=True)
class RivalTrace:
    """What another tuner did with one task, point by point.

    Attributes:
        at_seconds: wall-clock in seconds since the rival's start, rising, one per point.
        measurements: configurations it had measured by then.
        best_seconds: its lowest kernel time by then in seconds, infinity while there was none,
            on the clock of ``final_seconds``.
        failed: how many of its measurements failed.
        final_seconds: its best kernel timed as the pipelines' kernels are, or None.
        details: more for the record (JSON values).
    """

    at_seconds: tuple[float, ...]
    measurements: tuple[int, ...]
    best_seconds: tuple[float, ...]
    failed: int = 0
    final_seconds: float | None = None
    details: Mapping[str, Any] = attrs.field(factory=dict)


class Rival(ABC):
    """Another tuner, run in processes of its own."""

    @abstractmethod
    def tune(
        self, task: Task, *, measurements: int | None, wall_seconds: float | None, seed: int
    ) -> RivalTrace:
        """Tune a task until a limit is reached.

        Args:
            task: the task.
            measurements: configurations it may measure, or None for any number.
            wall_seconds: wall-clock in seconds after which it stops, its start included, or None.
            seed: of its search.

        Raises:
            ChameleonError: it cannot tune such a task, or ended with an error.
        """

"""The work of runners, as data: batches to measure, and programs to compare."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import attrs

from chameleon_core.pipeline.schema import StageSpec
from chameleon_core.task import Task


@attrs.frozen(kw_only=True)
class StageRef:
    """A stage as data, from which a worker process can make the stage again.

    Attributes:
        factory: ``"module:Class"``.
        options: JSON values for the options of the class.
    """

    factory: str
    options: dict[str, Any] = attrs.field(factory=dict)

    @classmethod
    def of(cls, spec: StageSpec) -> Self:
        """The reference of a stage that a pipeline names."""
        return cls(factory=spec.factory, options=spec.options_json)


@attrs.frozen(kw_only=True, eq=False)
class MeasureJob:
    """Configurations of one task that a runner measures.

    Attributes:
        task: the task.
        space: the space provider.
        configs: knob indices of each configuration.
        best_seconds: the task's lowest time so far, or infinity. Time limits and early stopping
            depend on it.
    """

    task: Task
    space: StageRef
    configs: Sequence[tuple[int, ...]]
    best_seconds: float = float("inf")


TUNED = "tuned"
"""Name of the contenders that are configurations of the space."""


@attrs.frozen(kw_only=True)
class Contender:
    """One program in a final comparison.

    Attributes:
        name: ``tuned``, ``untuned``, ``onednn`` and so on.
        variant: the baseline's variant; empty for a tuned configuration.
        stage: the space provider or the baseline.
        config: the configuration; ``()`` for a baseline.
    """

    name: str
    variant: str = ""
    stage: StageRef
    config: tuple[int, ...] = ()


def _tell_nobody(step: str, done: int, of: int) -> None:
    """Nobody wants to know how far a comparison is."""


@attrs.frozen(kw_only=True, eq=False)
class ComparisonPlan:
    """The time limit of a comparison, and a function that shows its progress.

    Attributes:
        seconds: wall-clock time that the comparison should take at most, compiling included;
            infinity for no limit.
        tell: takes a step (``built``, ``checked`` or ``timed``), the number done, and the total.
            Nobody calls it while a program is timed.
    """

    seconds: float = math.inf
    tell: Callable[[str, int, int], None] = _tell_nobody

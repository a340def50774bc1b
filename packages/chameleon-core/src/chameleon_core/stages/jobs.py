"""The work of runners, as data: batches to measure, and contenders to compare."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import attrs

from chameleon_core.pipeline.schema import StageSpec
from chameleon_core.task import Task


@attrs.frozen(kw_only=True)
class StageRef:
    """A stage as data: enough for a worker process to make it again.

    Attributes:
        factory: ``"module:Class"``.
        options: JSON values for the class's options.
    """

    factory: str
    options: dict[str, Any] = attrs.field(factory=dict)

    @classmethod
    def of(cls, spec: StageSpec) -> Self:
        """A stage that a pipeline names."""
        return cls(factory=spec.factory, options=spec.options_json)


@attrs.frozen(kw_only=True, eq=False)
class MeasureJob:
    """A batch of configurations of one task.

    Attributes:
        task: the task.
        space: the space provider, as data.
        configs: knob indices of each configuration.
        best_seconds: the task's best cost so far, infinity if there is none; time-outs and
            early stopping derive from it.
    """

    task: Task
    space: StageRef
    configs: Sequence[tuple[int, ...]]
    best_seconds: float = float("inf")


TUNED = "tuned"
"""Name of the contenders that are configurations of the space."""


@attrs.frozen(kw_only=True)
class Contender:
    """One side of a final comparison.

    Attributes:
        name: ``tuned``, ``untuned``, ``onednn`` and so on.
        variant: which way of computing; empty for a tuned configuration.
        stage: the space provider or baseline, as data.
        config: the configuration of a space; ``()`` for a baseline.
    """

    name: str
    variant: str = ""
    stage: StageRef
    config: tuple[int, ...] = ()


def _tell_nobody(step: str, done: int, of: int) -> None:
    """Nobody wants to know how far a comparison is."""


@attrs.frozen(kw_only=True, eq=False)
class ComparisonPlan:
    """Facts that a runner or a frontend may know of a comparison before it begins.

    Attributes:
        seconds: wall-clock that it should take at most, building included; infinity for any.
        tell: called with how far it is: a step (``built``, ``checked`` or ``timed``), how much of
            it is done, and of how much. Never while something is timed.
    """

    seconds: float = math.inf
    tell: Callable[[str, int, int], None] = _tell_nobody

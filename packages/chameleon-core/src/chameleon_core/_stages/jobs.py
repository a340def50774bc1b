"""The work of runners, as data: batches to measure, and programs to compare."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import attrs

from chameleon_core._pipeline.schema import StageSpec
from chameleon_core._pipeline.stage_reader import options_for
from chameleon_core._plugins.factory import load_factory
from chameleon_core._task import Task


@attrs.frozen(kw_only=True)
class StageRef:
    """A stage as plain data, from which a worker process can make the stage.

    Attributes:
        factory: the class of the stage as ``"module:Class"``.
        options: the options of the class, as JSON values.
    """

    factory: str
    options: dict[str, Any] = attrs.field(factory=dict)

    @classmethod
    def of(cls, spec: StageSpec) -> Self:
        """The reference of a stage that a pipeline names."""
        return cls(factory=spec.factory, options=spec.options_json)

    def create(self) -> Any:
        """Import the class of the stage, and make the stage.

        Raises:
            ChameleonError: the class cannot be imported, or its options have faults.
        """
        factory = load_factory(self.factory)
        return factory(options_for(factory, self.options))


@attrs.frozen(kw_only=True, eq=False)
class MeasureJob:
    """A job for a runner: configurations of one task to measure.

    Attributes:
        task: the task.
        space: the provider of the task's design space.
        configs: knob indices of each configuration.
        best_seconds: the task's lowest time so far in seconds, or infinity. Time limits and the
            number of repeats depend on it.
        final: whether the fastest of the configurations is delivered. They should get more repeats
            than in the search.
    """

    task: Task
    space: StageRef
    configs: Sequence[tuple[int, ...]]
    best_seconds: float = float("inf")
    final: bool = False


TUNED = "tuned"
"""Name of the contenders that are tuned configurations, and no baselines."""


@attrs.frozen(kw_only=True)
class Contender:
    """One program in a final comparison: a tuned configuration, or a variant of a baseline.

    Attributes:
        name: ``tuned``, or the name of the baseline, such as ``untuned`` or ``onednn``.
        variant: the name of the baseline's variant; empty for a tuned configuration.
        stage: the space provider or the baseline, which makes the program.
        config: the knob indices of the configuration; ``()`` for a baseline.
    """

    name: str
    variant: str = ""
    stage: StageRef
    config: tuple[int, ...] = ()


def _tell_nobody(step: str, done: int, of: int) -> None:
    """Ignore the progress of a comparison."""


@attrs.frozen(kw_only=True, eq=False)
class ComparisonPlan:
    """The time limit of a comparison, and a function that shows its progress.

    Attributes:
        seconds: the wall-clock time in seconds that the comparison should take at most, with
            compiling. Infinity for no limit.
        most_seconds: the wall-clock time in seconds after which the comparison begins nothing more,
            such as a rival that is not compiled yet. Infinity for no limit. The rivals that are
            left out have the reason ``NetworkResult.TIME_IS_OVER``.
        tell: the function that shows progress. Its arguments are a step (``built``, ``checked`` or
            ``timed``), the number of items done, and the number of all items. It must not be called
            while a program is timed.
    """

    seconds: float = math.inf
    most_seconds: float = math.inf
    tell: Callable[[str, int, int], None] = _tell_nobody

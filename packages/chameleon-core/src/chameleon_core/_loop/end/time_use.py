"""The wall-clock time of a run with a limit: where it went, and what was left out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import attrs
import cattrs

from chameleon_core._pipeline.schema import Requirement, ResolvedPipeline, Scope
from chameleon_core._words import in_seconds

CHECKING, CHOOSING, TUNING = "checking", "choosing", "tuning"
COMPARING, DELIVERING = "comparing", "delivering"
"""Names of the steps of a run."""

SHARE = 0.25
"""Share of a run's wall-clock time that all its comparisons together should take."""

OPERATORS = 0.25
"""Share of a network's operators in the time of all comparisons. That of the network says more."""

LEAST_SECONDS = 30.0
"""Seconds that the comparisons of a run may take, however small its budget is."""


def limit_of(pipeline: ResolvedPipeline, tasks: int) -> float | None:
    """The wall-clock time in seconds that a budget allows all tasks together; None for no limit."""
    budget = pipeline.budget
    if budget.wall_time is None:
        return None
    return budget.wall_time * (tasks if budget.scope is Scope.TASK else 1)


def most_seconds(pipeline: ResolvedPipeline, tasks: int) -> float:
    """The wall-clock time in seconds after which no further comparison of a run begins.

    It is infinite if the budget has no limit, or if the pipeline requires a comparison.
    """
    limit, require = limit_of(pipeline, tasks), pipeline.require or Requirement(verified=True)
    required = require.network_ratio is not None or require.min_ratio is not None
    if limit is None or required:
        return math.inf
    return max(LEAST_SECONDS, limit * SHARE / (1.0 - SHARE))


_SHORTEST = 0.5
"""Seconds of the shortest step that a sentence names."""


@attrs.frozen(kw_only=True)
class TimeUse:
    """The wall-clock time of a run with a limit, in seconds, summed over all its processes.

    Attributes:
        limit: the time that the budget allows.
        seconds: the time that the run took.
        steps: the time of each step, by its name.
        left_out: what was left out because the time was over.
    """

    limit: float
    seconds: float
    steps: Mapping[str, float] = attrs.field(factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def sentences(self) -> list[str]:
        """How much longer the run took than its budget, and what it left out; may be empty."""
        lines = []
        if self.seconds > self.limit:
            long = {name: took for name, took in self.steps.items() if took >= _SHORTEST}
            steps = ", ".join(f"{name} {_short(took)}" for name, took in long.items())
            lines.append(
                f"The run took {_short(self.seconds)}, and the budget's wall_time is "
                f"{_short(self.limit)}: {steps}."
            )
        if self.left_out:
            lines.append(f"Left out, since the time was over: {', '.join(self.left_out)}.")
        return lines

    def to_json(self) -> dict[str, Any]:
        """The times, and the sentences about them, as JSON values."""
        return {**attrs.asdict(self), "left_out": list(self.left_out), "summary": self.sentences}

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> Self | None:
        """Read the output of ``to_json``; None stays None."""
        return None if value is None else cattrs.structure(value, cls)


def _short(seconds: float) -> str:
    return in_seconds(seconds, ".3g")

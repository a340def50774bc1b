"""Spaces that are recorded completely: their objectives, their durations, and random search.

Budgets and random search follow Willemsen et al. (2024), doi 10.1016/j.future.2024.05.021, as in
version 1.1.0 of their package ``autotuning_methodology``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import attrs
import numpy as np
from chameleon_core.api import ResolvedPipeline, TaskSource
from chameleon_core.plugin_api import (
    ConfigError,
    DesignSpace,
    MeasureJob,
    Measurement,
    Runner,
    StageRef,
    Task,
)
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FIRST, LAST = 0.01, 0.95
"""Shares of the way from the median to the optimum at which a score's window begins and ends."""

_MARGIN = 1.1
"""The budget of a search over the end of the window, as in ``experiments.calculate_budget``."""


def all_measurements(pipeline: ResolvedPipeline) -> list[Measurement]:
    """The recorded measurements of all configurations of the task that a pipeline replays.

    Raises:
        ConfigError: The pipeline has several tasks, or its space is not recorded completely.
    """
    source = TaskSource(pipeline)
    tasks = source.tasks(source.target())
    runner = pipeline.runner.create()
    if len(tasks) != 1 or runner.measures_hardware:
        raise ConfigError(
            "only a task that is one recorded table has a score",
            hint="leave 'score' out, or list the other tasks in another suite",
        )
    return replayed(tasks[0], source.spaces(tasks)[0], runner, StageRef.of(pipeline.space))


def replayed(
    task: Task, space: DesignSpace, runner: Runner, provider: StageRef
) -> list[Measurement]:
    """The recorded measurements of all configurations of a design space.

    Raises:
        ConfigError: The space has too many configurations to be recorded.
    """
    if space.all_legal is None:
        raise ConfigError(
            f"the space of {task.name!r} has too many configurations to list them",
            hint="name a recorded table",
        )
    configs = [tuple(config) for config in space.all_legal.tolist()]
    return list(runner.measure(MeasureJob(task=task, space=provider, configs=configs)))


@attrs.frozen(kw_only=True, eq=False)
class RecordedSpace:
    """The figures of a space with n valid configurations that a score needs.

    Attributes:
        values: The objectives of the valid configurations in seconds, rising, shape (n,).
        size: The number of all configurations, failed ones included.
        median_seconds: The median time of building and running a configuration.
        mean_seconds: The time that an evaluation of random search takes.
    """

    values: Floats
    size: int
    median_seconds: float
    mean_seconds: float

    @classmethod
    def of(cls, measurements: Sequence[Measurement]) -> RecordedSpace:
        """The space of these measurements, one for each configuration.

        Raises:
            ConfigError: All valid configurations are equally fast.
        """
        costs = np.array([measured.cost for measured in measurements])
        seconds = np.array([one.build_seconds + one.run_seconds for one in measurements])
        valid = np.isfinite(costs)
        if len(np.unique(costs[valid])) < 2:  # noqa: PLR2004 - a search needs a choice
            raise ConfigError(
                "a space without a faster and a slower configuration has no score",
                hint="leave its table out of the suite",
            )
        failed = seconds[~valid]
        # As in the package: the mean of the valid ones is not weighted by their share.
        mean = seconds[valid].mean() + (failed.sum() / len(seconds))
        return cls(
            values=np.sort(costs[valid]),
            size=len(costs),
            median_seconds=float(np.median(seconds)),
            mean_seconds=float(mean),
        )

    def _evaluations_to(self, share: float) -> int:
        """The evaluations after which random search is expected to have come so far.

        The best of k draws without replacement from n valid configurations has the expected rank
        i = k (n + 1) / (k + 1) from the slowest. So rank i takes k = i / (n + 1 - i) evaluations.
        """
        count, best = len(self.values), self.values[0]
        goal = best + (np.median(self.values) - best) * (1 - share)
        reached = int(np.searchsorted(self.values, goal, side="right"))
        rank = count - reached
        if self.values[reached - 1] == best:
            rank -= 1  # the package takes the last rank before the optimum
        return math.ceil(rank / (count + 1 - rank))

    @cached_property
    def window(self) -> tuple[int, int]:
        """The first and the last evaluation that count for the score."""
        first, last = self._evaluations_to(FIRST), self._evaluations_to(LAST)
        if last - first < 2:  # noqa: PLR2004 - a window has three evaluations
            first, last = max(first - 1, 0), max(last, first + 1) + 1
        return first, min(last, self.size)

    @property
    def budget(self) -> int:
        """The number of measurements of a search: a tenth more than the window has."""
        return min(math.ceil(self.window[1] * _MARGIN), self.size)

    def random(self, evaluations: NDArray[np.intp]) -> Floats:
        """The objective at the expected rank of random search, after each number of evaluations.

        Args:
            evaluations: Numbers of evaluations, at least 1, shape (g,).
        """
        count = len(self.values)
        ranks = np.rint(evaluations * (count + 1) / (evaluations + 1)).astype(int)
        drawn: Floats = self.values[::-1][np.minimum(ranks, count - 1)]
        return drawn

    def ranks(self, costs: Floats) -> Floats:
        """The rank of each objective among all, from 0 for the optimum; NaN for failures."""
        # Trajectories keep nine digits.
        ranks: Floats = np.searchsorted(self.values, costs * (1 - 1e-8)).astype(float)
        ranks[~np.isfinite(costs)] = np.nan
        return ranks

    def at_ranks(self, ranks: Floats) -> Floats:
        """The objectives at ranks, which are rounded."""
        rounded = np.clip(np.rint(ranks), 0, len(self.values) - 1)
        values: Floats = self.values[rounded.astype(int)]
        return values

"""Summarizes the results of a suite: the effort and the quality of each pipeline per task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from chameleon_bench._cells.running import CellResult
from chameleon_bench._cells.trajectory import Trajectory, written
from chameleon_bench._statistics import goals
from chameleon_bench._statistics.estimates import estimated, finite
from chameleon_bench._suites.suite import Cell, Suite

LEVELS = (90, 95, 99)
"""The goals of a search, in percent of the best known speed."""

CHECKPOINTS = (64, 128, 256, 512)
"""The numbers of measurements after which the quality is reported."""

POINTS = 200
"""The number of points of a curve."""


@attrs.frozen(kw_only=True, eq=False)
class Group:
    """The results of one pipeline on one operator, over all seeds.

    Attributes:
        task: The task's name. If the task has several operators, the name is ``task/operator``.
        budget: The largest number of measurements of the pipeline; None for no limit.
        best_known: The lowest known cost of the operator in seconds.
        exhaustive: Whether no lower cost exists, because all configurations were recorded.
        runs: The trajectory of each run (its costs and seconds), by seed.
    """

    pipeline: str
    task: str
    budget: int | None
    best_known: float
    exhaustive: bool
    runs: Mapping[int, Trajectory]
    failures: Mapping[int, str]

    def values(self, metric: str) -> dict[int, float]:
        """The value of a metric for each seed, by seed.

        Args:
            metric: ``cost`` is the lowest time of the search in seconds. ``measurements_to_95`` and
                ``seconds_to_95`` say when the search reached 95 % of the best known throughput.
                Other percentages are allowed.
        """
        if metric == "cost":
            return {seed: run.best for seed, run in self.runs.items()}
        kind, _, level = metric.partition("_to_")
        column = 0 if kind == "measurements" else 1
        goal = self.best_known * 100 / int(level)
        return {seed: goals.reached(run, goal)[column] for seed, run in self.runs.items()}

    def to_json(self) -> dict[str, Any]:
        """The group's row in the report, as JSON values."""
        runs = list(self.runs.values())
        row: dict[str, Any] = {
            "pipeline": self.pipeline,
            "task": self.task,
            "best_known_seconds": finite(self.best_known),
            "best_known_is_exhaustive": self.exhaustive,
            "seeds": len(runs),
            "failed_cells": {str(seed): words for seed, words in self.failures.items()},
        }
        for kind in ("measurements", "seconds"):
            row[f"{kind}_to"] = {
                str(level): estimated(self.values(f"{kind}_to_{level}").values())
                for level in LEVELS
            }
        best = self.best_known
        remeasured = (run.final_seconds for run in runs if run.final_seconds is not None)
        return {
            **row,
            "quality_at": {
                str(count): estimated(goals.quality(run, count, best) for run in runs)
                if self.budget is None or count <= self.budget
                else None
                for count in CHECKPOINTS
            },
            "final_quality": estimated(goals.quality(run, run.measurements, best) for run in runs),
            "best_seconds": estimated(run.best for run in runs),
            "remeasured_seconds": estimated(remeasured),
            "measurements": estimated(float(run.measurements) for run in runs),
            "invalid_share": estimated(map(goals.invalid_share, runs)),
            "fallback_share": estimated(map(goals.fallback_share, runs)),
            "seconds": _each(goals.SECONDS, list(map(goals.seconds, runs))),
            "search_steps": _each(goals.STEPS, list(map(goals.steps, runs))),
        }

    def curves(self, ends: tuple[float, float]) -> dict[str, Any]:
        """The lowest cost over measurements and over seconds: median and quartiles over seeds.

        Args:
            ends: The last points of the two grids: a number of measurements, and seconds.
        """
        drawn: dict[str, Any] = {"pipeline": self.pipeline, "task": self.task}
        if not self.runs:
            return drawn
        grids = {
            "measurements": ("count", np.unique(np.linspace(1, ends[0], POINTS).astype(int))),
            "seconds": ("at", np.linspace(0.0, ends[1], POINTS)),
        }
        for name, (over, grid) in grids.items():
            curves = [goals.best_at(run, grid.astype(float), over) for run in self.runs.values()]
            low, middle, high = goals.band(curves)
            drawn[name] = {
                "at": grid.tolist(),
                "median_seconds": written(middle, 7),
                "low_seconds": written(low, 7),
                "high_seconds": written(high, 7),
            }
        return drawn


def groups_of(suite: Suite, results: Mapping[Cell, CellResult]) -> list[Group]:
    """Group the results of a suite by pipeline and operator, in the suite's order of tasks."""
    groups = []
    for task in suite.tasks:
        mine = [(cell, result) for cell, result in results.items() if cell.task == task]
        operators = list(dict.fromkeys(t.operator for _, r in mine for t in r.trajectories))
        for operator in operators or [task]:
            name = task if len(operators) < 2 else f"{task}/{operator}"  # noqa: PLR2004 - name several apart
            groups += _groups_of_operator(suite, task, name, operator, mine)
    return groups


def _groups_of_operator(
    suite: Suite, task: str, name: str, operator: str, mine: Sequence[tuple[Cell, CellResult]]
) -> list[Group]:
    runs: dict[str, dict[int, Trajectory]] = {pipeline: {} for pipeline in suite.pipelines}
    failures: dict[str, dict[int, str]] = {pipeline: {} for pipeline in suite.pipelines}
    for cell, result in mine:
        if result.failure is not None:
            failures[cell.pipeline][cell.seed] = result.failure
        for trajectory in result.trajectories:
            if trajectory.operator == operator:
                runs[cell.pipeline][cell.seed] = trajectory
    everything = [run for by_seed in runs.values() for run in by_seed.values()]
    known = [run.best_known for run in everything if run.best_known is not None]
    best = min(known or [run.best for run in everything], default=math.inf)
    return [
        Group(
            pipeline=pairing.pipeline,
            task=name,
            budget=pairing.measurements,
            best_known=best,
            exhaustive=bool(known),
            runs=runs[pairing.pipeline],
            failures=failures[pairing.pipeline],
        )
        for pairing in suite.pairings
        if pairing.task == task and (runs[pairing.pipeline] or failures[pairing.pipeline])
    ]


def grid_ends(groups: Sequence[Group]) -> dict[str, tuple[float, float]]:
    """The last points of each task's curves: a number of measurements, and seconds.

    If they went on until the slowest search ends, the curves of the other searches would be too
    narrow.
    """
    ends = {}
    for task in dict.fromkeys(group.task for group in groups):
        runs = [run for group in groups if group.task == task for run in group.runs.values()]
        counts = [float(run.measurements) for run in runs]
        lasts = [float(run.at[-1]) for run in runs if len(run.at)]
        longest = float(np.quantile(lasts, 0.75, method="higher")) if lasts else 1.0
        ends[task] = (max(counts, default=1.0) or 1.0, longest)
    return ends


def _each(names: Sequence[str], rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    return {name: estimated(row[name] for row in rows) for name in names}

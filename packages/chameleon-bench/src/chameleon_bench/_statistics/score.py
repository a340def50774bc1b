"""The published score of auto-tuners, over evaluations and over time.

The score is that of Willemsen et al. (2024), doi 10.1016/j.future.2024.05.021, as version 1.1.0 of
the authors' package ``autotuning_methodology`` computes it (``report_experiments.py``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from scipy.interpolate import PchipInterpolator
from scipy.optimize import isotonic_regression

from chameleon_bench._cells.trajectory import Floats, Trajectory
from chameleon_bench._statistics.estimates import RESAMPLES, finite, interval
from chameleon_bench._statistics.goals import best_at
from chameleon_bench._statistics.summary import Group
from chameleon_bench._suites.recorded import RecordedSpace

POINTS = 10_000
"""The number of points of time at which a score is computed, as in the package."""

REGRESSIONS = 300
"""The number of regressions whose mean is the rank over time. The package has fewer, so that its
scores vary from one call to the next."""

_FEWEST = 3
"""The package draws the points as if there were at least this many runs."""


@attrs.frozen(kw_only=True, eq=False)
class SpaceScore:
    """The score of one pipeline on one space.

    Attributes:
        evaluations: The mean over the evaluations of the window, of the performance at the mean
            rank of the runs.
        median_rank: The same at the median rank, as in the package's curves over evaluations.
        drawn: ``evaluations`` for bootstrap samples of the seeds, shape (RESAMPLES,). NaN for
            one seed.
        over_time: The performance at each point of time, shape (POINTS,).
    """

    evaluations: float
    median_rank: float
    drawn: Floats
    over_time: Floats


def score_on(space: RecordedSpace, runs: Sequence[Trajectory]) -> SpaceScore:
    """The score of some runs, one for each seed, on a recorded space."""
    first, last = space.window
    grid = np.arange(max(first, 1), last + 1)
    ranks = space.ranks(np.array([best_at(run, grid.astype(float), "count") for run in runs]))
    random = space.random(grid)
    rng = np.random.default_rng(0)
    weights = rng.multinomial(len(runs), np.full(len(runs), 1 / len(runs)), RESAMPLES)

    worst = len(space.values) - 1
    medians = np.nanmedian(np.where(np.isfinite(ranks).any(axis=0), ranks, worst), axis=0)

    def mean(ranks: Floats) -> Floats:
        scored: Floats = performance(space, space.at_ranks(ranks), random).mean(axis=-1)
        return scored

    drawn = mean(mean_ranks(ranks, weights.astype(float), worst=worst))
    return SpaceScore(
        evaluations=float(mean(mean_ranks(ranks, np.ones((1, len(runs))), worst=worst))[0]),
        median_rank=float(mean(medians)),
        # One seed does not tell how seeds differ.
        drawn=drawn if len(runs) > 1 else np.full(RESAMPLES, np.nan),
        over_time=over_time(space, runs),
    )


def mean_ranks(ranks: Floats, weights: Floats, *, worst: float) -> Floats:
    """Weighted means over runs of ranks, without runs that have no valid configuration yet.

    Args:
        ranks: The rank of each run at each point, NaN without one, shape (runs, g).
        weights: The weights of the runs, shape (samples, runs).
        worst: The rank at points at which no run has a valid configuration.
    """
    known = weights @ np.isfinite(ranks).astype(float)
    sums = weights @ np.nan_to_num(ranks)
    means: Floats = np.divide(sums, known, out=np.full_like(sums, worst), where=known > 0)
    return means


def performance(space: RecordedSpace, curve: Floats, random: Floats) -> Floats:
    """Relative performance: 0 for random search and 1 for the optimum."""
    gap = space.values[0] - random
    # If random search has the optimum, nothing is better.
    scored: Floats = np.divide(curve - random, gap, out=np.ones_like(curve), where=gap != 0)
    return scored


def over_time(space: RecordedSpace, runs: Sequence[Trajectory]) -> Floats:
    """The performance of some runs at each point of time, shape (POINTS,).

    The window in seconds is that in evaluations times the median seconds of an evaluation.
    """
    first, last = (evaluations * space.median_seconds for evaluations in space.window)
    grid = np.linspace(first, last, POINTS)
    margin = 0.1 + 0.25 / max(len(run.at) for run in runs)
    at = np.concatenate([run.at for run in runs])
    ranks = space.ranks(np.concatenate([run.best_so_far for run in runs]))
    inside = (at >= first * (1 - margin)) & (at <= last * (1 + margin)) & np.isfinite(ranks)
    if not inside.any():
        return np.full(POINTS, np.nan)
    order = np.argsort(at[inside], kind="stable")
    ranks_over_time = bagged(at[inside][order], ranks[inside][order], grid, len(runs))
    curve = space.at_ranks(ranks_over_time)
    # With fewer than half of the runs, the curve would be that of the slow ones.
    ends = np.sort([run.at[np.isfinite(run.best_so_far)].max(initial=0.0) for run in runs])
    later = ends[ends > np.median(ends)]
    if len(later) and later[0] < grid[-1]:
        stop = int(np.searchsorted(grid, later[0], side="right"))
        curve[stop:] = curve[stop]
    return performance(space, curve, random_over_time(space, grid))


def bagged(times: Floats, ranks: Floats, grid: Floats, runs: int) -> Floats:
    """The mean of falling isotonic regressions of rank over time, each of a random part of points.

    Args:
        times: The time of each measurement of all runs, rising, shape (n,).
        ranks: The rank that its run has reached, shape (n,).
        grid: The times at which the rank is wanted, shape (g,).
        runs: The number of runs. The package draws n / sqrt(runs) points for each regression.
    """
    rng, count = np.random.default_rng(0), len(times)
    drawn = max(int(count / math.sqrt(max(runs, _FEWEST))), 1)
    total = np.zeros(len(grid))
    for _ in range(REGRESSIONS):
        weights = np.bincount(rng.integers(count, size=drawn), minlength=count)
        there = weights > 0
        fitted = isotonic_regression(ranks[there], weights=weights[there], increasing=False).x
        total += np.interp(grid, times[there], fitted)
    return total / REGRESSIONS


def random_over_time(space: RecordedSpace, seconds: Floats) -> Floats:
    """The objective that random search reaches after each number of seconds, shape (g,).

    Args:
        seconds: Rising numbers of seconds at equal distances, shape (g,).
    """
    evaluations = np.rint(np.maximum(seconds / space.mean_seconds, 1)).astype(int)
    at = np.unique(evaluations)
    if len(at) == 1:
        return space.random(evaluations)
    smooth: Floats = PchipInterpolator(at, space.random(at))(
        np.linspace(at[0], at[-1], len(seconds))
    )
    return smooth


def scores(groups: Sequence[Group], spaces: Mapping[str, RecordedSpace]) -> dict[str, Any]:
    """The scores of all pipelines, as JSON values.

    Returns:
        ``spaces`` has the budget of each space. ``tasks`` has the scores of each pipeline on each
        space, and ``pipelines`` their means over the spaces. ``low`` and ``high`` are the ends of
        bootstrap intervals over seeds. ``lead`` is what the first pipeline, ``leader``, has more.
    """
    table: dict[str, dict[str, SpaceScore]] = {}
    for group in groups:
        if group.task in spaces and group.runs:
            score = score_on(spaces[group.task], list(group.runs.values()))
            table.setdefault(group.pipeline, {})[group.task] = score
    # A mean over other spaces could not be compared.
    whole = {name: list(by.values()) for name, by in table.items() if len(by) == len(spaces)}
    totals = {name: _total(by) for name, by in whole.items()}
    leader = next(iter(totals), None)
    first = None if leader is None else totals[leader]
    return {
        "spaces": {
            name: {
                "evaluations": space.window[1],
                "budget": space.budget,
                "configurations": space.size,
                "valid": len(space.values),
                "best_seconds": float(space.values[0]),
                "median_seconds": float(np.median(space.values)),
            }
            for name, space in spaces.items()
        },
        "leader": leader,
        "tasks": [
            {"pipeline": name, "task": task, **_described(score)}
            for name, by in table.items()
            for task, score in by.items()
        ],
        "pipelines": [
            {
                "pipeline": name,
                **_described(total),
                # The package calls this the error.
                "time_deviation": finite(float(np.std(total.over_time))),
                "lead": None if first is total or first is None else _lead(first, total),
            }
            for name, total in sorted(totals.items(), key=lambda item: -item[1].evaluations)
        ],
    }


def _total(by: Sequence[SpaceScore]) -> SpaceScore:
    """The mean of scores over spaces, each of equal weight."""
    return SpaceScore(
        evaluations=float(np.mean([score.evaluations for score in by])),
        median_rank=float(np.mean([score.median_rank for score in by])),
        drawn=np.mean([score.drawn for score in by], axis=0),
        over_time=np.mean([score.over_time for score in by], axis=0),
    )


def _described(score: SpaceScore) -> dict[str, Any]:
    low, high = interval(score.drawn)
    time = finite(float(np.mean(score.over_time)))
    means = {"evaluations": score.evaluations, "low": finite(low), "high": finite(high)}
    return {**means, "median_rank": score.median_rank, "time": time}


def _lead(first: SpaceScore, other: SpaceScore) -> dict[str, float | None]:
    low, high = map(finite, interval(first.drawn - other.drawn))
    return {"mean": first.evaluations - other.evaluations, "low": low, "high": high}

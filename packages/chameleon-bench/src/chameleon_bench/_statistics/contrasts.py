"""Compares pipelines: by paired tests over seeds, by ratios over tasks, and by catching up.

Catching up asks how much of its measurements or seconds a pipeline needs to reach the final result
of another one.

A search that did not reach its goal has the value infinity (it is censored). It counts as slower
than every search that reached the goal.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from chameleon_bench._statistics import goals
from chameleon_bench._statistics.estimates import RESAMPLES, estimate, estimated, finite, interval
from chameleon_bench._statistics.summary import Group

METRICS = ("measurements_to_95", "seconds_to_95", "cost")
"""The metrics by which pipelines are compared; smaller is better."""


def paired_tests(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Test with Wilcoxon's test for every pair of pipelines whether one is better on a task."""
    rows: list[dict[str, Any]] = []
    for metric in METRICS:
        tests: list[dict[str, Any]] = []
        for first, second in _pairs(groups):
            ours, other = _matched(first, second, metric)
            tests.append(
                {
                    "metric": metric,
                    "task": first.task,
                    "first": first.pipeline,
                    "second": second.pipeline,
                    "seeds": len(ours),
                    "first_median": finite(estimate(ours).median) if ours else None,
                    "second_median": finite(estimate(other).median) if other else None,
                    "p": paired_p(ours, other),
                }
            )
        for test, adjusted in zip(tests, holm([test["p"] for test in tests]), strict=True):
            test["p_holm"] = adjusted
        rows += tests
    return rows


def ratios(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Compare every two pipelines by the ratio of their medians, averaged over tasks."""
    names = list(dict.fromkeys(group.pipeline for group in groups))
    rows = []
    for metric in METRICS:
        for first, second in itertools.combinations(names, 2):
            pairs = {
                left.task: _matched(left, other, metric)
                for left, other in _pairs(groups)
                if (left.pipeline, other.pipeline) == (first, second)
            }
            ratio = geometric_ratio(pairs).to_json()
            rows.append({"metric": metric, "first": first, "second": second, **ratio})
    return rows


def catching_up(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """The effort of each pipeline to reach another pipeline's final result, for every pair.

    Ahn et al. (2020, section 4.3) compare times in this way.
    """
    rows = []
    for pair in _pairs(groups):
        for chaser, target in (pair, pair[::-1]):
            seeds = sorted(chaser.runs.keys() & target.runs.keys())
            shares: dict[str, list[float]] = {"measurements": [], "seconds": []}
            for seed in seeds:
                run, other = chaser.runs[seed], target.runs[seed]
                needed = goals.reached(run, other.best) if math.isfinite(other.best) else (0, 0)
                spent = (other.measurements, float(other.at[-1]) if len(other.at) else 0.0)
                for name, value, whole in zip(shares, needed, spent, strict=True):
                    shares[name].append(value / whole if whole else math.nan)
            estimates = {f"share_of_{name}": estimated(values) for name, values in shares.items()}
            both = {"pipeline": chaser.pipeline, "reaches": target.pipeline}
            rows.append({"task": chaser.task, **both, **estimates})
    return rows


def _pairs(groups: Sequence[Group]) -> list[tuple[Group, Group]]:
    return [
        (first, second)
        for first, second in itertools.combinations(groups, 2)
        if first.task == second.task
    ]


def _matched(first: Group, second: Group, metric: str) -> tuple[list[float], list[float]]:
    left, other = first.values(metric), second.values(metric)
    seeds = sorted(left.keys() & other.keys())
    return [left[seed] for seed in seeds], [other[seed] for seed in seeds]


def paired_p(first: Sequence[float], second: Sequence[float]) -> float | None:
    """The two-sided p-value of Wilcoxon's signed-rank test for values paired by seed.

    ``first`` are the values of one pipeline; infinity if censored.
    """
    left, other = np.asarray(first, float), np.asarray(second, float)
    if len(left) < 2:  # noqa: PLR2004 - a test needs two pairs
        return None
    both = np.isinf(left) & np.isinf(other)
    difference = np.where(both, 0.0, np.subtract(left, other, where=~both, out=np.zeros(len(left))))
    known = np.abs(difference[np.isfinite(difference)])
    most = 2 * float(known.max(initial=0.0)) or 1.0
    difference = np.clip(difference, -most, most)
    if not difference.any():
        return 1.0
    from scipy import stats  # noqa: PLC0415 - the import takes half a second

    return float(stats.wilcoxon(difference, zero_method="wilcox").pvalue)


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values for the number of tests by Holm's step-down method."""
    order = sorted(
        (index for index, value in enumerate(values) if value is not None),
        key=lambda index: values[index] or 0.0,
    )
    adjusted: list[float | None] = [None] * len(values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * (values[index] or 0.0)))
        adjusted[index] = highest
    return adjusted


@attrs.frozen(kw_only=True)
class Ratio:
    """The ratio of two pipelines' medians, as a geometric mean over tasks.

    Attributes:
        mean: The median of the first pipeline divided by that of the second, as a mean over tasks.
            NaN if no task has both medians.
        low: The lower end of the 95 % bootstrap interval over seeds; NaN if there is none.
        left_out: The tasks without a ratio, because a median is censored (infinite).
    """

    mean: float
    low: float
    high: float
    tasks: int
    left_out: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The attributes as JSON values, null for infinity and NaN."""
        ends = {"ratio": finite(self.mean), "low": finite(self.low), "high": finite(self.high)}
        return {**ends, "tasks": self.tasks, "left_out": list(self.left_out)}


def geometric_ratio(
    pairs: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, paired: bool = True
) -> Ratio:
    """Compare two pipelines by the geometric mean of one ratio per task."""
    rng = np.random.default_rng(0)
    logs: list[float] = []
    drawn = np.zeros(RESAMPLES)
    left_out = []
    resample = True
    for task, (first, second) in pairs.items():
        left, other = np.asarray(first, float), np.asarray(second, float)
        medians = [float(np.median(values)) if len(values) else 0.0 for values in (left, other)]
        if not all(0 < median < math.inf for median in medians):
            left_out.append(task)
            continue
        logs.append(math.log(medians[0] / medians[1]))
        resample = resample and min(len(left), len(other)) > 1
        rows = rng.integers(len(left), size=(RESAMPLES, len(left)))
        # Paired values are drawn with the same seeds, because they vary together.
        others = rows if paired else rng.integers(len(other), size=(RESAMPLES, len(other)))
        tops, bottoms = np.median(left[rows], axis=1), np.median(other[others], axis=1)
        with np.errstate(all="ignore"):
            drawn += np.where(np.isinf(tops) & np.isinf(bottoms), 0.0, np.log(tops / bottoms))
    low, high, mean = math.nan, math.nan, math.nan
    if logs:
        mean = math.exp(sum(logs) / len(logs))
        if resample:
            low, high = interval(np.exp(drawn / len(logs)))
    return Ratio(mean=mean, low=low, high=high, tasks=len(logs), left_out=tuple(left_out))

"""Pipelines against each other: paired tests by seed, ratios over tasks, catching up."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from chameleon_bench.statistics import goals
from chameleon_bench.statistics.estimates import estimate, estimated, finite
from chameleon_bench.statistics.paired_tests import geometric_ratio, holm, paired_p
from chameleon_bench.statistics.summary import Group

METRICS = ("measurements_to_95", "seconds_to_95", "cost")
"""What pipelines are compared by; less is better in all of them."""


def paired_tests(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Wilcoxon's test for every pair of pipelines on every task, adjusted by Holm's method.

    The adjustment is over all pairs and tasks of one metric.
    """
    rows: list[dict[str, Any]] = []
    for metric in METRICS:
        tests: list[dict[str, Any]] = []
        for first, second in _pairs(groups):
            one, other = _matched(first, second, metric)
            tests.append(
                {
                    "metric": metric,
                    "task": first.task,
                    "first": first.pipeline,
                    "second": second.pipeline,
                    "seeds": len(one),
                    "first_median": finite(estimate(one).median) if one else None,
                    "second_median": finite(estimate(other).median) if other else None,
                    "p": paired_p(one, other),
                }
            )
        for test, adjusted in zip(tests, holm([test["p"] for test in tests]), strict=True):
            test["p_holm"] = adjusted
        rows += tests
    return rows


def ratios(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """The geometric mean over tasks of the ratio of medians, for every pair of pipelines."""
    names = list(dict.fromkeys(group.pipeline for group in groups))
    rows = []
    for metric in METRICS:
        for first, second in itertools.combinations(names, 2):
            pairs = {
                one.task: _matched(one, other, metric)
                for one, other in _pairs(groups)
                if (one.pipeline, other.pipeline) == (first, second)
            }
            ratio = geometric_ratio(pairs).to_json()
            rows.append({"metric": metric, "first": first, "second": second, **ratio})
    return rows


def catching_up(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """What each pipeline needed to reach the other's final result with the same seed.

    As the paper compares optimization times (section 4.3): shares are of what the other spent
    in all, so 0.25 says a quarter. Seeds in which the result was never reached count as infinite.
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
    one, other = first.values(metric), second.values(metric)
    seeds = sorted(one.keys() & other.keys())
    return [one[seed] for seed in seeds], [other[seed] for seed in seeds]

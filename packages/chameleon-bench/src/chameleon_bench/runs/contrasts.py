"""Runs against each other: ratios of their times with intervals, and a paired test."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from chameleon_bench.runs.reading import ComparedOperator, ComparedRun
from chameleon_bench.statistics.estimates import estimate, finite, interval, resampled_medians
from chameleon_bench.statistics.paired_tests import geometric_ratio, holm, paired_p


def shared(runs: Sequence[ComparedRun]) -> list[str]:
    """What all runs tune, in the order of the first."""
    first, *others = runs
    return [key for key in first.operators if all(key in one.operators for one in others)]


def time_json(operator: ComparedOperator) -> dict[str, Any]:
    """The time of one operator in one run, and what it took to find it."""
    repeats = operator.repeats
    found = estimate(repeats) if repeats else None
    return {
        "name": operator.name,
        "seconds": finite(operator.median),
        "low": None if found is None else finite(found.low),
        "high": None if found is None else finite(found.high),
        "repeats": len(repeats),
        "seconds_from": None if operator.time is None else str(operator.time.source),
        "measurements": len(operator.costs),
        "wall_seconds": operator.seconds,
    }


def pairs_json(runs: Sequence[ComparedRun]) -> list[dict[str, Any]]:
    """Every two runs over what both tune; p values are adjusted for the number of pairs by Holm.

    The test is Wilcoxon's signed-rank test over operators, of the logarithms of their times: one
    operator counts as much as another, however long it takes.

    Args:
        runs: the runs.
    """
    rows = [_pair(one, other) for one, other in itertools.combinations(runs, 2)]
    for row, adjusted in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row["p_holm"] = adjusted
    return rows


def sum_json(run: ComparedRun, weights: Mapping[str, int]) -> dict[str, Any]:
    """The sum of a run's times over some operators with its interval.

    Args:
        run: the run.
        weights: how often each operator counts, by what it computes.
    """
    operators = [run.operators[key] for key in weights]
    counts = list(weights.values())
    total = sum(count * one.median for count, one in zip(counts, operators, strict=True))
    low, high = math.nan, math.nan
    if operators and all(len(one.repeats) > 1 for one in operators):
        rng = np.random.default_rng(0)
        drawn = sum(
            count * resampled_medians(np.asarray(one.repeats), rng)
            for count, one in zip(counts, operators, strict=True)
        )
        low, high = interval(np.asarray(drawn))
    return {"seconds": finite(total), "low": finite(low), "high": finite(high)}


def _pair(first: ComparedRun, second: ComparedRun) -> dict[str, Any]:
    keys = shared([first, second])
    both = [(first.operators[key], second.operators[key]) for key in keys]
    names = {key: one.name for key, (one, _) in zip(keys, both, strict=True)}
    row: dict[str, Any] = {
        "first": first.name,
        "second": second.name,
        "operators": [
            {"name": one.name, **_ratio({one.name: (one, other)}), **_needed(one, other)}
            for one, other in both
        ],
        **_ratio({names[key]: pair for key, pair in zip(keys, both, strict=True)}),
    }
    row["network"] = _network_ratio(first, second)
    row["same_model"] = first.document.get("model") == second.document.get("model")
    # The logarithm of infinity, which says that there is no time, is infinity.
    sides = [[math.log(side.median) for side in pair] for pair in both]
    row["p"] = paired_p([one for one, _ in sides], [other for _, other in sides])
    row["least_p"] = 2.0 ** (1 - len(both)) if row["p"] is not None else None
    row["mixed_sources"] = [one.name for one, other in both if _mixed(one, other)]
    return row


def _network_ratio(first: ComparedRun, second: ComparedRun) -> float | None:
    """First latency over second; None where one of them was not timed."""
    one, other = first.latency, second.latency
    return one / other if one and other else None


def _mixed(one: ComparedOperator, other: ComparedOperator) -> bool:
    """Whether one time is of a search and the other of a comparison."""
    return (
        one.time is not None and other.time is not None and one.time.source is not other.time.source
    )


def _ratio(pairs: dict[str, tuple[ComparedOperator, ComparedOperator]]) -> dict[str, Any]:
    """First over second, so that more than 1 says that the second run is faster."""
    repeats = {name: (one.repeats, other.repeats) for name, (one, other) in pairs.items()}
    return geometric_ratio(repeats, paired=False).to_json()


def _needed(first: ComparedOperator, second: ComparedOperator) -> dict[str, Any]:
    """Measurements until each was as fast as the slower of the two searches ended."""
    ends = [float(one.costs.min(initial=math.inf)) for one in (first, second)]
    goal = max(ends)
    return {
        "goal_seconds": finite(goal),
        "first_measurements_to_goal": first.measurements_to(goal),
        "second_measurements_to_goal": second.measurements_to(goal),
    }


__all__ = ["pairs_json", "shared", "sum_json", "time_json"]

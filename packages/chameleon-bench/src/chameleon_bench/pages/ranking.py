"""Who comes first in a suite, by what, and whether that is more than chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from chameleon_bench.pages.rendering import Table
from chameleon_bench.statistics.contrasts import METRICS

Row = Mapping[str, Any]

SIGNIFICANT = 0.05
"""An adjusted p below this is called significant."""

_LEVEL = 1.0005
"""Pipelines whose ratios would all be written as 1.000 are level."""

WORDS = {
    "measurements_to_95": "measurements to 95 % of the best known speed",
    "seconds_to_95": "seconds to 95 % of the best known speed",
    "cost": "time of the best kernel found",
}
"""What pipelines are compared by, in words; less is better."""


@attrs.frozen(kw_only=True)
class Ranking:
    """The pipelines by one metric, the best first.

    Attributes:
        metric: one of ``METRICS``.
        order: pipelines that can be compared, the best first.
        times: by pipeline, how many times as much as the first one it needs.
        won: by pipeline and task, whom it beats significantly.
        tasks: tasks on which anything was tested.
        left_out: pipelines without a ratio, because most of their searches never got there.
    """

    metric: str
    order: Sequence[str]
    times: Mapping[str, float]
    won: Mapping[str, Sequence[tuple[str, str]]]
    tasks: int
    left_out: Sequence[str]


def rankings(report: Row) -> list[Ranking]:
    """A ranking by each metric; none where there is nothing to compare.

    Pipelines are ordered by the geometric mean of their ratios to all others, each of which is a
    geometric mean over tasks.

    Args:
        report: as ``report_of`` makes it.
    """
    if len(report["pipelines"]) < 2:  # noqa: PLR2004 - nothing to compare
        return []
    return [_ranking(report, metric) for metric in METRICS]


def _ranking(report: Row, metric: str) -> Ranking:
    logs: dict[str, list[float]] = {}
    for row in report["ratios"]:
        if row["metric"] == metric and row["ratio"]:
            logs.setdefault(row["first"], []).append(math.log(row["ratio"]))
            logs.setdefault(row["second"], []).append(-math.log(row["ratio"]))
    scores = {name: math.fsum(found) / len(found) for name, found in logs.items()}
    order = sorted(scores, key=lambda name: scores[name])
    best = order[0] if order else None
    tests = [row for row in report["tests"] if row["metric"] == metric]
    return Ranking(
        metric=metric,
        order=order,
        times={name: _ratio_to(report, metric, name, best) for name in order},
        won=_won(tests),
        tasks=len({row["task"] for row in tests}),
        left_out=[name for name in report["pipelines"] if name not in scores],
    )


def _ratio_to(report: Row, metric: str, name: str, best: str | None) -> float:
    """A pipeline's ratio to the first one, over the tasks that both of them have; else NaN."""
    if name == best:
        return 1.0
    for row in report["ratios"]:
        if row["metric"] == metric and row["ratio"]:
            if (row["first"], row["second"]) == (name, best):
                return float(row["ratio"])
            if (row["first"], row["second"]) == (best, name):
                return 1.0 / float(row["ratio"])
    return math.nan


def _won(tests: Sequence[Row]) -> dict[str, list[tuple[str, str]]]:
    won: dict[str, list[tuple[str, str]]] = {}
    for row in tests:
        if row["p_holm"] is None or row["p_holm"] >= SIGNIFICANT:
            continue
        first, second = _or_infinite(row["first_median"]), _or_infinite(row["second_median"])
        if first == second:
            continue
        pair = row["first"], row["second"]
        winner, loser = pair if first < second else pair[::-1]
        won.setdefault(winner, []).append((loser, row["task"]))
    return won


def _or_infinite(value: float | None) -> float:
    return math.inf if value is None else value


def sentences(found: Sequence[Ranking]) -> list[str]:
    """What the rankings say, a sentence or two for each metric."""
    told = []
    for one in found:
        if len(one.order) < 2:  # noqa: PLR2004 - nothing to compare
            told.append(f"By {WORDS[one.metric]} too few pipelines can be compared.")
            continue
        if all(times < _LEVEL for times in one.times.values()):
            told.append(f"By {WORDS[one.metric]} all pipelines are level.")
            continue
        first, second = one.order[:2]
        beaten = [task for loser, task in one.won.get(first, ()) if loser == second]
        times = one.times[second]
        ahead = f"{second} takes {times:.3g} times as much" if math.isfinite(times) else second
        significant = (
            f"significantly so on {len(beaten)} of {one.tasks} tasks"
            if beaten
            else "a difference that is significant on no task"
        )
        told.append(f"By {WORDS[one.metric]}, {first} comes first; {ahead}, {significant}.")
    return told


def ranking_table(one: Ranking) -> Table:
    """A ranking as a table."""
    rows = []
    for rank, name in enumerate(one.order, start=1):
        times = one.times[name]
        rows.append(
            (
                name,
                str(rank),
                f"{times:.3g}" if math.isfinite(times) else "-",
                _beaten(one.won.get(name, ())),
            )
        )
    rows += [(name, "-", "∞", "-") for name in one.left_out]
    return Table(
        header=("pipeline", "rank", "times the first", "significantly better than"), rows=rows
    )


def _beaten(pairs: Sequence[tuple[str, str]]) -> str:
    losers = dict.fromkeys(loser for loser, _ in pairs)
    counts = {name: sum(loser == name for loser, _ in pairs) for name in losers}
    return ", ".join(f"{name} ({count})" for name, count in counts.items()) or "-"

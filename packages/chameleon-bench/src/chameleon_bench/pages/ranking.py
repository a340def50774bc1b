"""Who comes first in a suite, by what, and whether that is more than chance."""

from __future__ import annotations

import math
from collections import Counter
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
    ratios: dict[str, dict[str, float]] = {}
    for row in report["ratios"]:
        if row["metric"] == metric and row["ratio"]:
            ratios.setdefault(row["first"], {})[row["second"]] = float(row["ratio"])
            ratios.setdefault(row["second"], {})[row["first"]] = 1.0 / float(row["ratio"])
    scores = {
        name: math.fsum(map(math.log, others.values())) / len(others)
        for name, others in ratios.items()
    }
    order = sorted(scores, key=lambda name: scores[name])
    first = {order[0]: 1.0} if order else {}
    tests = [row for row in report["tests"] if row["metric"] == metric]
    return Ranking(
        metric=metric,
        order=order,
        # Over the tasks that both have; NaN if there are none.
        times={name: ratios[name].get(order[0], math.nan) for name in order} | first,
        won=_won(tests),
        tasks=len({row["task"] for row in tests}),
        left_out=[name for name in report["pipelines"] if name not in scores],
    )


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


def sentences(ranked: Sequence[Ranking]) -> list[str]:
    """What the rankings say, a sentence or two for each metric."""
    return [_sentence(ranking, WORDS[ranking.metric]) for ranking in ranked]


def _sentence(ranking: Ranking, words: str) -> str:
    if len(ranking.order) < 2:  # noqa: PLR2004 - nothing to compare
        return f"By {words} too few pipelines can be compared."
    if all(times < _LEVEL for times in ranking.times.values()):
        return f"By {words} all pipelines are level."
    first, second = ranking.order[:2]
    beaten = [task for loser, task in ranking.won.get(first, ()) if loser == second]
    times = ranking.times[second]
    ahead = f"{second} takes {times:.3g} times as much" if math.isfinite(times) else second
    significant = (
        f"significantly so on {len(beaten)} of {ranking.tasks} tasks"
        if beaten
        else "a difference that is significant on no task"
    )
    return f"By {words}, {first} comes first; {ahead}, {significant}."


def ranking_table(ranking: Ranking) -> Table:
    """A ranking as a table."""
    rows = [
        (
            name,
            str(rank),
            f"{ranking.times[name]:.3g}" if math.isfinite(ranking.times[name]) else "-",
            _beaten(ranking.won.get(name, ())),
        )
        for rank, name in enumerate(ranking.order, start=1)
    ]
    rows += [(name, "-", "∞", "-") for name in ranking.left_out]
    return Table(
        header=("pipeline", "rank", "times the first", "significantly better than"), rows=rows
    )


def _beaten(pairs: Sequence[tuple[str, str]]) -> str:
    counts = Counter(loser for loser, _ in pairs)
    return ", ".join(f"{name} ({count})" for name, count in counts.items()) or "-"

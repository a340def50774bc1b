"""The page about a suite: what ``templates/suite.html`` shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
from chameleon_core.words import in_seconds

from chameleon_bench.pages.plots import Plot, packed, plotly_js
from chameleon_bench.pages.ranking import WORDS, ranking_table, rankings, sentences
from chameleon_bench.pages.rendering import Table, rendered
from chameleon_bench.pages.suite_plots import PARTS, budgets, suite_plots
from chameleon_bench.statistics.contrasts import METRICS
from chameleon_bench.statistics.summary import LEVELS

Row = Mapping[str, Any]


@attrs.frozen(kw_only=True)
class _Task:
    """What is shown of one task.

    Attributes:
        name: the task's.
        best_known_seconds: or None where nothing has a time.
        exhaustive: whether nothing better exists.
        plots: quality over measurements and seconds and at budgets, and where seconds went, by key.
        goals: measurements, and seconds, to shares of the best known, by unit.
        quality: after so many measurements, and at the end.
        spending: search steps, invalid measurements and seconds.
        failed: cells that failed; None where none did.
    """

    name: str
    best_known_seconds: float | None
    exhaustive: bool
    plots: Mapping[str, Plot]
    goals: Mapping[str, Table]
    quality: Table
    spending: Table
    failed: Table | None


def page_of(report: Row) -> str:
    """The page.

    Args:
        report: as ``report_of`` makes it.
    """
    plots = suite_plots(report)
    found = rankings(report)
    return rendered(
        "suite.html",
        title=report["suite"],
        report=report,
        headline=sentences(found),
        rankings=[(WORDS[one.metric], ranking_table(one)) for one in found],
        ratios=_ratios(report),
        tasks=[_task(report, name, plots) for name in report["tasks"]],
        tests=_tests(report),
        catching_up=_catching_up(report),
        origin=_origin(report),
        plots=plots,
        packed=packed(plots, report["suite"]),
        plotly=plotly_js(),
    )


def _task(report: Row, name: str, plots: Sequence[Plot]) -> _Task:
    rows = [row for row in report["results"] if row["task"] == name]
    failed = [(row["pipeline"], *one) for row in rows for one in row["failed_cells"].items()]
    return _Task(
        name=name,
        best_known_seconds=rows[0]["best_known_seconds"],
        exhaustive=rows[0]["best_known_is_exhaustive"],
        plots={plot.key: plot for plot in plots if plot.subject == name},
        goals={
            kind: _goals(rows, f"{kind}_to", unit)
            for kind, unit in (("measurements", _count), ("seconds", _seconds))
        },
        quality=_quality(rows),
        spending=_spending(rows),
        failed=Table(header=("pipeline", "seed", "why"), rows=failed) if failed else None,
    )


def _goals(rows: Iterable[Row], key: str, unit: Callable[[float | None], str]) -> Table:
    return Table(
        header=("pipeline", *(f"{level} %" for level in LEVELS)),
        rows=[(row["pipeline"], *(_cell(row[key][str(x)], unit) for x in LEVELS)) for row in rows],
    )


def _quality(rows: Sequence[Row]) -> Table:
    counts = budgets(rows)
    return Table(
        header=("pipeline", *map(str, counts), "end", "best", "re-measured", "measured"),
        rows=[
            (
                row["pipeline"],
                *(_cell(row["quality_at"][str(count)], _share) for count in counts),
                _cell(row["final_quality"], _share),
                _cell(row["best_seconds"], in_seconds),
                _cell(row["remeasured_seconds"], in_seconds),
                _cell(row["measurements"], _count),
            )
            for row in rows
        ],
    )


def _spending(rows: Sequence[Row]) -> Table:
    return Table(
        header=(
            *("pipeline", "steps", "steps to convergence", "a round", "invalid", "fallback"),
            *("search s", "model s", "build s", "run s", "total s"),
        ),
        rows=[
            (
                row["pipeline"],
                _cell(row["search_steps"]["total"], _count),
                _cell(row["search_steps"]["converged"], _count),
                _cell(row["search_steps"]["converged_per_round"], _count),
                _cell(row["invalid_share"], _share),
                _cell(row["fallback_share"], _share),
                *(_cell(row["seconds"][part], _seconds) for part in (*PARTS, "total")),
            )
            for row in rows
        ],
    )


def _ratios(report: Row) -> Table:
    return Table(
        header=("first / second", "metric", "ratio", "tasks", "left out"),
        rows=[
            (
                f"{row['first']} / {row['second']}",
                row["metric"],
                _cell({**row, "median": row["ratio"]}, _ratio, missing="-"),
                str(row["tasks"]),
                ", ".join(row["left_out"]) or "-",
            )
            for metric in METRICS
            for row in report["ratios"]
            if row["metric"] == metric
        ],
    )


def _tests(report: Row) -> Table:
    return Table(
        header=("first, second", "task", "metric", "medians", "seeds", "p", "p adjusted"),
        rows=[
            (
                f"{row['first']}, {row['second']}",
                row["task"],
                row["metric"],
                f"{_ratio(row['first_median'])}, {_ratio(row['second_median'])}",
                str(row["seeds"]),
                _p(row["p"]),
                _p(row["p_holm"]),
            )
            for row in report["tests"]
        ],
    )


def _catching_up(report: Row) -> Table:
    return Table(
        header=("pipeline reaches", "task", "share of measurements", "share of seconds"),
        rows=[
            (
                f"{row['pipeline']} → {row['reaches']}",
                row["task"],
                _cell(row["share_of_measurements"], _ratio),
                _cell(row["share_of_seconds"], _ratio),
            )
            for row in report["catching_up"]
        ],
    )


def _origin(report: Row) -> Table:
    about = report["environment"]
    rows = [(key, str(value)) for key, value in about.items() if key != "versions"]
    rows += list(about["versions"].items())
    rows += [("runner", json.dumps(one)) for one in report["runners"]]
    return Table(header=("what", "value"), rows=rows)


# ----- words and numbers ---------------------------------------------------------------------


def _cell(value: Row | None, words: Callable[[float | None], str], missing: str = "∞") -> str:
    if value is None:
        return "-"
    middle = missing if value["median"] is None else words(value["median"])
    ends = ""
    if value["low"] is not None:
        high = missing if value["high"] is None else words(value["high"])
        ends = f" [{words(value['low'])}, {high}]"
    some = f" {value['reached']}/{value['of']}" if value.get("reached") != value.get("of") else ""
    return f"{middle}{ends}{some}"


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _ratio(value: float | None) -> str:
    return "∞" if value is None else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _p(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"

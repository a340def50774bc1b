"""The page about a suite: what ``templates/suite.html`` shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
from chameleon_core.words import in_seconds
from markupsafe import Markup

from chameleon_bench.pages.figures import Line, bar, colours_of, lines_figure
from chameleon_bench.pages.rendering import Table, rendered
from chameleon_bench.statistics.contrasts import METRICS
from chameleon_bench.statistics.summary import CHECKPOINTS, LEVELS

Row = Mapping[str, Any]

_PARTS = ("search", "model", "build", "run")
"""Where seconds go; those of workers are summed."""

_HIGHEST_SHARE = 1.03
"""Where axes of shares of the best known speed end."""


@attrs.frozen(kw_only=True)
class _Task:
    """What is shown of one task.

    Attributes:
        name: the task's.
        best_known_seconds: or None where nothing has a time.
        exhaustive: whether nothing better exists.
        curves: speed over measurements and over seconds.
        goals: measurements, and seconds, to shares of the best known, by unit.
        quality: after so many measurements, and at the end.
        spending: search steps, invalid measurements and seconds.
        failed: cells that failed; None where none did.
    """

    name: str
    best_known_seconds: float | None
    exhaustive: bool
    curves: Sequence[Markup]
    goals: Mapping[str, Table]
    quality: Table
    spending: Table
    failed: Table | None


def page_of(report: Row) -> str:
    """The page.

    Args:
        report: as ``report_of`` makes it.
    """
    colours = colours_of(report["pipelines"])
    return rendered(
        "suite.html",
        title=report["suite"],
        report=report,
        colours=colours,
        parts=colours_of(_PARTS),
        ratios=_ratios(report),
        tasks=[_task(report, name, colours) for name in report["tasks"]],
        tests=_tests(report),
        catching_up=_catching_up(report),
        origin=_origin(report),
    )


def _task(report: Row, name: str, colours: Mapping[str, str]) -> _Task:
    rows = [row for row in report["results"] if row["task"] == name]
    best = rows[0]["best_known_seconds"]
    curves = [one for one in report["curves"] if one["task"] == name and "measurements" in one]
    failed = [(row["pipeline"], *one) for row in rows for one in row["failed_cells"].items()]
    return _Task(
        name=name,
        best_known_seconds=best,
        exhaustive=rows[0]["best_known_is_exhaustive"],
        curves=_curves(curves, best, colours) if best and curves else (),
        goals={
            kind: _goals(rows, f"{kind}_to", unit)
            for kind, unit in (("measurements", _count), ("seconds", _seconds))
        },
        quality=_quality(rows),
        spending=_spending(rows),
        failed=Table(header=("pipeline", "seed", "why"), rows=failed) if failed else None,
    )


def _curves(curves: Sequence[Row], best: float, colours: Mapping[str, str]) -> list[Markup]:
    """Best-so-far over measurements and over seconds, both as a share of the best known speed."""

    def shares(seconds: Iterable[float | None]) -> list[float]:
        return [best / value if value else 0.0 for value in seconds]

    figures = []
    for over, across in (
        ("measurements", "measurements"),
        ("seconds", "seconds on the run's clock"),
    ):
        lines = [
            Line(
                name=one["pipeline"],
                at=one[over]["at"],
                values=shares(one[over]["median_seconds"]),
                # The slower quartile is the lower speed.
                low=shares(one[over]["high_seconds"]),
                high=shares(one[over]["low_seconds"]),
                colour=colours[one["pipeline"]],
            )
            for one in curves
        ]
        figures.append(
            lines_figure(
                lines,
                across=across,
                upwards="share of the best known speed",
                right=max(line.at[-1] for line in lines) or 1.0,
                top=_HIGHEST_SHARE,
            )
        )
    return figures


def _goals(rows: Iterable[Row], key: str, unit: Callable[[float | None], str]) -> Table:
    return Table(
        header=("pipeline", *(f"{level} %" for level in LEVELS)),
        rows=[(row["pipeline"], *(_cell(row[key][str(x)], unit) for x in LEVELS)) for row in rows],
    )


def _quality(rows: Iterable[Row]) -> Table:
    return Table(
        header=("pipeline", *map(str, CHECKPOINTS), "end", "best", "re-measured", "measured"),
        rows=[
            (
                row["pipeline"],
                *(_cell(row["quality_at"][str(count)], _share) for count in CHECKPOINTS),
                _cell(row["final_quality"], _share),
                _cell(row["best_seconds"], in_seconds),
                _cell(row["remeasured_seconds"], in_seconds),
                _cell(row["measurements"], _count),
            )
            for row in rows
        ],
    )


def _spending(rows: Sequence[Row]) -> Table:
    bars = [{part: _middle(row["seconds"][part]) for part in _PARTS} for row in rows]
    whole = max((sum(parts.values()) for parts in bars), default=0.0)
    return Table(
        header=(
            *("pipeline", "steps", "steps to convergence", "a round", "invalid", "fallback"),
            *("", "search s", "model s", "build s", "run s", "total s"),
        ),
        rows=[
            (
                row["pipeline"],
                _cell(row["search_steps"]["total"], _count),
                _cell(row["search_steps"]["converged"], _count),
                _cell(row["search_steps"]["converged_per_round"], _count),
                _cell(row["invalid_share"], _share),
                _cell(row["fallback_share"], _share),
                bar(parts, whole),
                *(_cell(row["seconds"][part], _seconds) for part in (*_PARTS, "total")),
            )
            for row, parts in zip(rows, bars, strict=True)
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


def _middle(value: Row | None) -> float:
    """A median for a bar, which has no length where it is not known."""
    return 0.0 if value is None else value["median"] or 0.0


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

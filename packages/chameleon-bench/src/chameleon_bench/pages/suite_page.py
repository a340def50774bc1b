"""The report as one HTML page that needs nothing else: tables, inline plots, the suite's text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any

from chameleon_core.words import in_seconds

from chameleon_bench.pages.html import document, table
from chameleon_bench.pages.suite_figures import curves_figure, seconds_figure
from chameleon_bench.statistics.contrasts import METRICS
from chameleon_bench.statistics.summary import CHECKPOINTS, LEVELS

_LEGEND = (
    "Medians over seeds with 95 % bootstrap intervals in brackets. A search that never reached a "
    "goal counts as infinite (∞), and a count such as 47/50 says how many did. Shares are of the "
    "best known speed."
)

Row = Mapping[str, Any]


def page_of(report: Row) -> str:
    """The page.

    Args:
        report: as ``report_of`` makes it.
    """
    cells = report["cells"]
    parts = [
        f"<h1>{escape(report['suite'])}</h1>",
        (
            f"<p>{len(report['pipelines'])} pipelines, {len(report['tasks'])} tasks, "
            f"{len(report['seeds'])} seeds; {cells['ended']} of {cells['all']} cells have ended, "
            f"{cells['failed']} of them failed.</p>"
        ),
        f"<p class=note>{_LEGEND}</p>",
    ]
    parts += ["<h2>Over all tasks</h2>", *_ratios(report)]
    for task in report["tasks"]:
        parts += _task(report, task)
    parts += ["<h2>Paired tests</h2>", *_tests(report)]
    parts += ["<h2>Catching up</h2>", *_catching_up(report)]
    parts += _origin(report)
    return document(report["suite"], parts)


def _task(report: Row, task: str) -> list[str]:
    rows = [row for row in report["results"] if row["task"] == task]
    best = rows[0]["best_known_seconds"]
    source = "of the whole table" if rows[0]["best_known_is_exhaustive"] else "any cell has found"
    parts = [
        f"<h2>{escape(task)}</h2>",
        f"<p>Best known: {in_seconds(best)}, the best {source}.</p>",
    ]
    curves = [one for one in report["curves"] if one["task"] == task]
    parts += [figure for figure in (curves_figure(task, curves, best),) if figure]
    run = [row for row in rows if row["seeds"]]
    for kind, unit in (("measurements", _count), ("seconds", _seconds)):
        parts.append(f"<h3>{kind.capitalize()} to a share of the best known</h3>")
        header = ["pipeline", *(f"{level} %" for level in LEVELS)]
        parts.append(
            table(
                header,
                [
                    [row["pipeline"], *(_cell(row[f"{kind}_to"][str(x)], unit) for x in LEVELS)]
                    for row in run
                ],
            )
        )
    parts.append("<h3>Quality after so many measurements, and at the end</h3>")
    parts.append(
        table(
            ["pipeline", *map(str, CHECKPOINTS), "end", "best", "re-measured", "measured"],
            [
                [
                    row["pipeline"],
                    *(_cell(row["quality_at"][str(count)], _share) for count in CHECKPOINTS),
                    _cell(row["final_quality"], _share),
                    _cell(row["best_seconds"], in_seconds),
                    _cell(row["remeasured_seconds"], in_seconds),
                    _cell(row["measurements"], _count),
                ]
                for row in run
            ],
        )
    )
    parts.append("<h3>Search steps, invalid measurements, seconds</h3>")
    parts += [figure for figure in (seconds_figure(task, run),) if figure]
    parts.append(
        table(
            [
                *("pipeline", "steps", "steps to convergence", "a round", "invalid"),
                *("search s", "model s", "build s", "run s", "total s"),
            ],
            [
                [
                    row["pipeline"],
                    _cell(row["search_steps"]["total"], _count),
                    _cell(row["search_steps"]["converged"], _count),
                    _cell(row["search_steps"]["converged_per_round"], _count),
                    _cell(row["invalid_share"], _share),
                    *(
                        _cell(row["seconds"][part], _seconds)
                        for part in ("search", "model", "build", "run", "total")
                    ),
                ]
                for row in run
            ],
        )
    )
    failed = [(row["pipeline"], *one) for row in rows for one in row["failed_cells"].items()]
    if failed:
        parts.append("<h3>Failed cells</h3>")
        parts.append(table(["pipeline", "seed", "why"], failed))
    return parts


def _ratios(report: Row) -> Iterable[str]:
    yield (
        "<p class=note>Geometric mean over tasks of first / second median; below 1 the first needs "
        "less. Tasks in which a median is infinite have no ratio and are left out.</p>"
    )
    yield table(
        ["first / second", "metric", "ratio", "tasks", "left out"],
        [
            [
                f"{row['first']} / {row['second']}",
                row["metric"],
                _cell({**row, "median": row["ratio"]}, _ratio, missing="-"),
                str(row["tasks"]),
                ", ".join(row["left_out"]) or "-",
            ]
            for metric in METRICS
            for row in report["ratios"]
            if row["metric"] == metric
        ],
    )


def _tests(report: Row) -> Iterable[str]:
    yield (
        "<p class=note>Wilcoxon's signed-rank test between runs with the same seed, two-sided; "
        "adjusted by Holm's method over all pairs and tasks of a metric.</p>"
    )
    yield table(
        ["first, second", "task", "metric", "medians", "seeds", "p", "p adjusted"],
        [
            [
                f"{row['first']}, {row['second']}",
                row["task"],
                row["metric"],
                f"{_ratio(row['first_median'])}, {_ratio(row['second_median'])}",
                str(row["seeds"]),
                _p(row["p"]),
                _p(row["p_holm"]),
            ]
            for row in report["tests"]
        ],
    )


def _catching_up(report: Row) -> Iterable[str]:
    yield (
        "<p class=note>What a pipeline needed to be as fast as the other one at its end, as a "
        "share of all that the other one spent.</p>"
    )
    yield table(
        ["pipeline reaches", "task", "share of measurements", "share of seconds"],
        [
            [
                f"{row['pipeline']} → {row['reaches']}",
                row["task"],
                _cell(row["share_of_measurements"], _ratio),
                _cell(row["share_of_seconds"], _ratio),
            ]
            for row in report["catching_up"]
        ],
    )


def _origin(report: Row) -> Iterable[str]:
    about = report["environment"]
    yield "<h2>Where this comes from</h2>"
    rows = [[key, str(value)] for key, value in about.items() if key != "versions"]
    rows += [[name, version] for name, version in about["versions"].items()]
    rows += [["runner", json.dumps(one)] for one in report["runners"]]
    yield table(["what", "value"], rows)
    if report["overrides"]:
        yield f"<p>Overrides: <code>{escape(' '.join(report['overrides']))}</code></p>"
    yield f"<pre>{escape(report['text'])}</pre>"


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

"""Writes a suite's report: report.json, cells.csv, summary.csv and report.html.

The page is what ``templates/suite.html`` shows.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from chameleon_core.loop.round.batch import Origin
from chameleon_core.versions import installed
from chameleon_core.words import in_seconds
from chameleon_system.files import write_whole
from chameleon_system.processor import processor_name

from chameleon_bench.cells.running import CellResult
from chameleon_bench.pages.plots import Plot, packed, plotly_js
from chameleon_bench.pages.ranking import WORDS, ranking_table, rankings, sentences
from chameleon_bench.pages.rendering import Table, rendered
from chameleon_bench.pages.suite_plots import PARTS, budgets, suite_plots
from chameleon_bench.statistics.contrasts import METRICS, catching_up, paired_tests, ratios
from chameleon_bench.statistics.goals import invalid_share, reached, seconds
from chameleon_bench.statistics.summary import LEVELS, Group, grid_ends, groups_of
from chameleon_bench.suites.suite import Cell, Suite

DISTRIBUTIONS = (
    "apache-tvm",
    "numpy",
    "scipy",
    "xgboost",
    "xgboost-cpu",
    "lightgbm",
    "scikit-learn",
    "torch",
)
"""Libraries whose versions results may depend on, beside the plugins that take part."""


def report_of(suite: Suite, results: Mapping[Cell, CellResult]) -> dict[str, Any]:
    """Everything that is known of a suite, as JSON values.

    Args:
        suite: the suite.
        results: of the cells that have ended; the report says how many have not.
    """
    groups = groups_of(suite, results)
    ends = grid_ends(groups)
    cells = list(suite.cells())
    failed = [cell for cell, result in results.items() if result.failure is not None]
    return {
        "suite": suite.title,
        "folder": str(suite.output),
        "pipelines": suite.pipelines,
        "tasks": list(dict.fromkeys(group.task for group in groups)),
        "seeds": list(suite.seeds),
        "cells": {"all": len(cells), "ended": len(results), "failed": len(failed)},
        "results": [group.to_json() for group in groups],
        "ratios": ratios(groups),
        "tests": paired_tests(groups),
        "catching_up": catching_up(groups),
        "curves": [group.curves(ends[group.task]) for group in groups],
        "environment": environment(suite),
        "runners": _runners(results),
        "text": suite.text,
        "overrides": list(suite.overrides),
    }


def printed(report: Mapping[str, Any]) -> dict[str, Any]:
    """What ``bench --json`` prints: the report without curves and texts."""
    return {key: value for key, value in report.items() if key not in {"curves", "text"}}


def write_report(
    suite: Suite, results: Mapping[Cell, CellResult], report: Mapping[str, Any]
) -> list[Path]:
    """Write the report's files into the suite's folder; which ones."""
    groups = groups_of(suite, results)
    texts = {
        "report.json": json.dumps(report, indent=1) + "\n",
        "cells.csv": _sheet(_cell_rows(groups)),
        "summary.csv": _sheet([_flat(row) for row in report["results"]]),
        "report.html": page_of(report),
    }
    suite.output.mkdir(parents=True, exist_ok=True)
    return [write_whole(suite.output / name, text) for name, text in texts.items()]


def environment(suite: Suite) -> dict[str, Any]:
    """What results depend on: machine, versions, the commit of the suite's folder if known."""
    taking_part = {k: v for pairing in suite.pairings for k, v in pairing.versions.items()}
    return {
        "machine": platform.machine(),
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": installed(DISTRIBUTIONS) | taking_part,
        "commit": _commit(suite.source),
        "written_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    }


def _commit(source: Path | None) -> str | None:
    git = shutil.which("git")
    if git is None or source is None:
        return None
    command = [git, "-C", str(source.parent), "describe", "--always", "--dirty", "--abbrev=12"]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    return found.stdout.strip() or None if found.returncode == 0 else None


def _runners(results: Mapping[Cell, CellResult]) -> list[Any]:
    """What measured, each description once; a rival's details are in its cells."""
    described = {
        json.dumps(dict(result.environment), sort_keys=True): dict(result.environment)
        for cell, result in results.items()
        if cell.rival is None and result.environment
    }
    return list(described.values())


def _cell_rows(groups: Sequence[Group]) -> list[dict[str, Any]]:
    rows = []
    for group in groups:
        for seed in sorted(group.runs.keys() | group.failures.keys()):
            row: dict[str, Any] = {"pipeline": group.pipeline, "task": group.task, "seed": seed}
            row["failure"] = group.failures.get(seed)
            run = group.runs.get(seed)
            if run is not None:
                row |= {"measurements": run.measurements, "best_seconds": run.best}
                row["remeasured_seconds"] = run.final_seconds
                row["invalid_share"] = invalid_share(run)
                for level in LEVELS:
                    needed = reached(run, group.best_known * 100 / level)
                    row[f"measurements_to_{level}"], row[f"seconds_to_{level}"] = needed
                if run.origins:
                    row |= {f"from_{name}": run.origins.get(name, 0) for name in Origin}
                row |= {f"{name}_seconds": value for name, value in seconds(run).items()}
            rows.append(row)
    return rows


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested mapping as one level, keys joined by dots."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        name = f"{prefix}{key}"
        if key == "failed_cells":
            flat[name] = len(value)
        elif isinstance(value, Mapping):
            flat |= _flat(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def _sheet(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, restval="")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


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

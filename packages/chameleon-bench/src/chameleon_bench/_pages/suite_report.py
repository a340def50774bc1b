"""Writes a suite's report: report.json, cells.csv, summary.csv and report.html.

The page report.html is made from ``templates/suite.html``.
"""

from __future__ import annotations

import csv
import datetime as dt
import functools
import io
import json
import math
import operator
import os
import platform
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import attrs
from chameleon_core.api import installed, words
from chameleon_core.plugin_api import Measurement
from chameleon_system.api import processor_name, write_atomic

from chameleon_bench._cells.running import CellResult
from chameleon_bench._pages.plots import Plot
from chameleon_bench._pages.rendering import Table, rendered_page
from chameleon_bench._pages.suite_plots import PARTS, budgets, suite_plots
from chameleon_bench._statistics.contrasts import METRICS, catching_up, paired_tests, ratios
from chameleon_bench._statistics.goals import invalid_share, reached, seconds
from chameleon_bench._statistics.score import scores
from chameleon_bench._statistics.summary import LEVELS, Group, grid_ends, groups_of
from chameleon_bench._suites.suite import Cell, Suite

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
"""Libraries whose versions the report shows, beside those of plugins that take part."""


def report_of(suite: Suite, results: Mapping[Cell, CellResult]) -> dict[str, Any]:
    """The report of a suite as JSON values."""
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
        "scores": scores(groups, suite.spaces) if suite.spaces else None,
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
    """The part of a suite's report that ``chameleon bench --json`` prints."""
    return {key: value for key, value in report.items() if key not in {"curves", "text"}}


def write_report(
    suite: Suite, results: Mapping[Cell, CellResult], report: Mapping[str, Any]
) -> list[Path]:
    """Write the files of a report into the suite's folder."""
    groups = groups_of(suite, results)
    texts = {
        "report.json": json.dumps(report, indent=1) + "\n",
        "cells.csv": _sheet(_cell_rows(groups)),
        "summary.csv": _sheet([_flat(row) for row in report["results"]]),
        "report.html": page_of(report),
    }
    suite.output.mkdir(parents=True, exist_ok=True)
    return [write_atomic(suite.output / name, text) for name, text in texts.items()]


def environment(suite: Suite) -> dict[str, Any]:
    """The machine, the versions, and the Git commit of the suite's folder."""
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
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout.strip() or None if done.returncode == 0 else None


def _runners(results: Mapping[Cell, CellResult]) -> list[Any]:
    """The descriptions of all runners, each once, without rivals."""
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
                    row |= {f"from_{name}": run.origins.get(name, 0) for name in Measurement.Origin}
                row |= {f"{name}_seconds": value for name, value in seconds(run).items()}
            rows.append(row)
    return rows


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested mapping as a flat mapping, with keys joined by dots."""
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
Unit = Callable[[float | None], str]


def page_of(report: Row) -> str:
    """The HTML page of a suite."""
    plots = suite_plots(report)
    ranked = rankings(report)
    return rendered_page(
        "suite.html",
        report["suite"],
        plots,
        report=report,
        headline=sentences(ranked),
        scores=score_tables(report["scores"]),
        rankings=[(WORDS[ranking.metric], ranking_table(ranking)) for ranking in ranked],
        ratios=_ratios(report),
        tasks=[_task(report, name, plots) for name in report["tasks"]],
        tests=_tests(report),
        catching_up=_catching_up(report),
        origin=_origin(report),
    )


def _task(report: Row, name: str, plots: Sequence[Plot]) -> dict[str, Any]:
    """The values for the part of the page about one task."""
    rows = [row for row in report["results"] if row["task"] == name]
    failed = [(row["pipeline"], *cell) for row in rows for cell in row["failed_cells"].items()]
    return {
        "name": name,
        "best_known_seconds": rows[0]["best_known_seconds"],
        "exhaustive": rows[0]["best_known_is_exhaustive"],
        "plots": {plot.key: plot for plot in plots if plot.subject == name},
        "goals": {
            kind: Table.of(
                rows,
                _PIPELINE,
                *((f"{level} %", _estimate(unit, f"{kind}_to", str(level))) for level in LEVELS),
            )
            for kind, unit in (("measurements", _count), ("seconds", _seconds))
        },
        "quality": Table.of(
            rows,
            _PIPELINE,
            *((str(count), _estimate(_share, "quality_at", str(count))) for count in budgets(rows)),
            ("end", _estimate(_share, "final_quality")),
            ("best", _estimate(words.in_seconds, "best_seconds")),
            ("re-measured", _estimate(words.in_seconds, "remeasured_seconds")),
            ("measured", _estimate(_count, "measurements")),
        ),
        "spending": Table.of(
            rows,
            _PIPELINE,
            ("steps", _estimate(_count, "search_steps", "total")),
            ("steps to convergence", _estimate(_count, "search_steps", "converged")),
            ("a round", _estimate(_count, "search_steps", "converged_per_round")),
            ("invalid", _estimate(_share, "invalid_share")),
            ("fallback", _estimate(_share, "fallback_share")),
            *((f"{part} s", _estimate(_seconds, "seconds", part)) for part in (*PARTS, "total")),
        ),
        "failed": Table(header=("pipeline", "seed", "why"), rows=failed) if failed else None,
    }


_PIPELINE = ("pipeline", itemgetter("pipeline"))


def _estimate(unit: Unit, *keys: str) -> Callable[[Row], str]:
    """A function that returns the cell for the estimate below some keys of a row."""
    return lambda row: _cell(functools.reduce(operator.getitem, keys, row), unit)


def score_tables(scores: Row | None) -> dict[str, Table]:
    """The tables of the published score, by their titles; none if the suite has no score."""
    if scores is None:
        return {}
    budgets = {name: str(space["evaluations"]) for name, space in scores["spaces"].items()}
    by_task: dict[str, dict[str, Row]] = {}
    for row in scores["tasks"]:
        by_task.setdefault(row["task"], {})[row["pipeline"]] = row
    names = list(dict.fromkeys(row["pipeline"] for row in scores["tasks"]))
    return {
        f"Score, mean of {len(budgets)} spaces": Table.of(
            scores["pipelines"],
            _PIPELINE,
            ("by evaluations", lambda row: _bracketed(row["evaluations"], row)),
            ("at the median rank", lambda row: _share(row["median_rank"])),
            ("by time", lambda row: _share(row["time"])),
            ("deviation over time", lambda row: _share(row["time_deviation"])),
            (
                f"less than {scores['leader']}",
                lambda row: _bracketed(row["lead"]["mean"], row["lead"]) if row["lead"] else "-",
            ),
        ),
        "Score by evaluations on each space": Table(
            header=("space", "evaluations", *names),
            rows=[
                (task, budgets[task], *(_score_of(rows.get(name)) for name in names))
                for task, rows in by_task.items()
            ],
        ),
    }


def _bracketed(middle: float, ends: Row) -> str:
    if ends["low"] is None:
        return f"{middle:.3f}"
    return f"{middle:.3f} [{ends['low']:.3f}, {ends['high']:.3f}]"


def _score_of(row: Row | None) -> str:
    return "-" if row is None else _bracketed(row["evaluations"], row)


def _ratios(report: Row) -> Table:
    return Table.of(
        [row for metric in METRICS for row in report["ratios"] if row["metric"] == metric],
        ("first / second", lambda row: f"{row['first']} / {row['second']}"),
        ("metric", itemgetter("metric")),
        ("ratio", lambda row: _cell({**row, "median": row["ratio"]}, _ratio, missing="-")),
        ("tasks", lambda row: str(row["tasks"])),
        ("left out", lambda row: ", ".join(row["left_out"]) or "-"),
    )


def _tests(report: Row) -> Table:
    return Table.of(
        report["tests"],
        ("first, second", lambda row: f"{row['first']}, {row['second']}"),
        ("task", itemgetter("task")),
        ("metric", itemgetter("metric")),
        ("medians", lambda row: f"{_ratio(row['first_median'])}, {_ratio(row['second_median'])}"),
        ("seeds", lambda row: str(row["seeds"])),
        ("p", lambda row: _p(row["p"])),
        ("p adjusted", lambda row: _p(row["p_holm"])),
    )


def _catching_up(report: Row) -> Table:
    return Table.of(
        report["catching_up"],
        ("pipeline reaches", lambda row: f"{row['pipeline']} → {row['reaches']}"),
        ("task", itemgetter("task")),
        ("share of measurements", _estimate(_ratio, "share_of_measurements")),
        ("share of seconds", _estimate(_ratio, "share_of_seconds")),
    )


def _origin(report: Row) -> Table:
    about = report["environment"]
    rows = [(key, str(value)) for key, value in about.items() if key != "versions"]
    rows += list(about["versions"].items())
    rows += [("runner", json.dumps(runner)) for runner in report["runners"]]
    return Table(header=("what", "value"), rows=rows)


# ----- words and numbers ---------------------------------------------------------------------


def _cell(value: Row | None, unit: Unit, missing: str = "∞") -> str:
    if value is None:
        return "-"
    middle = missing if value["median"] is None else unit(value["median"])
    ends = ""
    if value["low"] is not None:
        high = missing if value["high"] is None else unit(value["high"])
        ends = f" [{unit(value['low'])}, {high}]"
    some = f" {value['reached']}/{value['of']}" if value.get("reached") != value.get("of") else ""
    return f"{middle}{ends}{some}"


def _number(form: str, missing: str = "-") -> Unit:
    """A function that formats numbers; ``missing`` stands for None."""
    return lambda value: missing if value is None else format(value, form)


_count, _seconds, _share, _p = map(_number, (".0f", ".3g", ".3f", ".2g"))
_ratio = _number(".3g", missing="∞")


# ----- ranking -------------------------------------------------------------------------------

SIGNIFICANT = 0.05
"""The adjusted p-value below which a difference is called significant."""

_LEVEL = 1.0005
"""The ratio below which pipelines count as equal: it would be printed as 1.000."""

WORDS = {
    "measurements_to_95": "measurements to 95 % of the best known speed",
    "seconds_to_95": "seconds to 95 % of the best known speed",
    "cost": "time of the best kernel found",
}
"""The metrics by which pipelines are compared, as phrases; smaller is better."""


@attrs.frozen(kw_only=True)
class Ranking:
    """A ranking of a suite's pipelines by one metric.

    Attributes:
        order: The pipelines that can be compared, best first.
        times: The metric of each pipeline divided by the metric of the best one, by pipeline.
        won: For each pipeline, the pairs (other pipeline, task) in which it is significantly
            better.
        tasks: The number of tasks for which a statistical test compared pipelines by this metric.
        left_out: Pipelines that are not in ``order``. Most of their searches did not reach the goal
            of the metric, such as 95 % of the best known throughput.
    """

    metric: str
    order: Sequence[str]
    times: Mapping[str, float]
    won: Mapping[str, Sequence[tuple[str, str]]]
    tasks: int
    left_out: Sequence[str]


def rankings(report: Row) -> list[Ranking]:
    """A ranking of the pipelines by each metric; empty if there is only one pipeline."""
    if len(report["pipelines"]) < 2:  # noqa: PLR2004 - one pipeline compares with nothing
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
        # Each ratio is over the tasks that both pipelines have; it is NaN if there are none.
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
    """A sentence about each ranking."""
    return [_sentence(ranking, WORDS[ranking.metric]) for ranking in ranked]


def _sentence(ranking: Ranking, words: str) -> str:
    if len(ranking.order) < 2:  # noqa: PLR2004 - one pipeline compares with nothing
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
    """The table of a ranking."""
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

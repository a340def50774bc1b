"""Writes a suite's report: report.json, cells.csv, summary.csv and report.html."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chameleon_core.loop.round.batch import Origin
from chameleon_core.versions import installed
from chameleon_system.files import write_whole
from chameleon_system.processor import processor_name

from chameleon_bench.cells.running import CellResult
from chameleon_bench.pages.suite_page import page_of
from chameleon_bench.statistics.contrasts import catching_up, paired_tests, ratios
from chameleon_bench.statistics.goals import invalid_share, reached, seconds
from chameleon_bench.statistics.summary import LEVELS, Group, grid_ends, groups_of
from chameleon_bench.suites.suite import Cell, Suite

DISTRIBUTIONS = (
    "apache-tvm",
    "numpy",
    "scipy",
    "xgboost",
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

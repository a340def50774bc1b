"""The command ``chameleon bench``, which runs pipelines on tasks over seeds and compares them."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click
from chameleon_cli.api import (
    duration,
    given_again,
    output_option,
    print_table,
    results_alone,
    set_option,
    signals,
)
from chameleon_core.api import Interruption
from chameleon_core.plugin_api import ExitCode

from chameleon_bench._cells.execute import Execution, move_aside, outdated, results
from chameleon_bench._pages.rendering import Table
from chameleon_bench._pages.suite_report import printed, report_of, score_tables, write_report
from chameleon_bench._suites.load import load_suite
from chameleon_bench._suites.suite import Cell, Suite


@click.command("bench", epilog="Example: chameleon bench suite.yaml --set seeds=3")
@click.argument("suite", type=click.Path(path_type=Path))
@set_option("seeds=3 or data=FOLDER")
@click.option("--fresh", is_flag=True, help="Move the cells of earlier runs aside.")
@click.option("--retry", is_flag=True, help="Run failed cells again.")
@click.option("--report-only", is_flag=True, help="Run nothing; report the results so far.")
@click.option("--dry-run", is_flag=True, help="List the cells, and run nothing.")
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Number of processes for replayed cells."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@output_option("The suite's folder")
def command(  # noqa: PLR0917 - click passes them by name
    suite: Path,
    overrides: tuple[str, ...],
    fresh: bool,
    retry: bool,
    report_only: bool,
    dry_run: bool,
    jobs: int | None,
    as_json: bool,
    output: Path | None,
) -> None:
    """Run every cell of SUITE that has no result, and compare the pipelines.

    Replayed cells run in parallel, live ones one at a time. Ctrl-C stops the suite, and the same
    command continues it. The suite's folder gets report.html, report.json, cells.csv and
    summary.csv.
    """
    again, overrides = given_again("bench", suite, overrides, output)
    with results_alone():
        loaded = load_suite(suite, overrides)
    if dry_run:
        _dry_run(loaded, as_json=as_json)
        return
    with results_alone():
        if fresh:
            move_aside(loaded)
        _tell_versions(loaded, run=not report_only)
        if not report_only:
            _run(loaded, jobs=jobs, retry=retry, again=again)
        ended = results(loaded)
        report = report_of(loaded, ended)
        files = write_report(loaded, ended, report)
    if as_json:
        click.echo(json.dumps(printed(report)))
    else:
        _print(report)
        click.echo(f"report: {next(file for file in files if file.suffix == '.html')}")
    whole = any(row["seeds"] for row in report["results"])
    failed = report["cells"]["failed"]
    if failed:
        click.echo(
            f"{failed} of {report['cells']['all']} cells failed; --retry repeats them", err=True
        )
    sys.exit(ExitCode.OK if whole and not failed else ExitCode.NO_VALID_RESULT)


def _tell_versions(loaded: Suite, *, run: bool) -> None:
    """Print which results belong to other versions, and which versions changed."""
    cells = outdated(loaded)
    if not cells:
        return
    changed = {
        f"{name} was {result.versions.get(name, 'another version')} and is {version}"
        for cell, result in cells.items()
        for name, version in cell.versions.items()
        if result.versions.get(name) != version
    }
    what = "run again" if run else "do not count"
    click.echo(
        f"{len(cells)} cells of other versions {what}: {'; '.join(sorted(changed))}", err=True
    )


def _run(loaded: Suite, *, jobs: int | None, retry: bool, again: str) -> None:
    interruption = Interruption()
    before = sum(retry is False or r.failure is None for r in results(loaded).values())
    progress = _Progress(len(list(loaded.cells())), before)
    execution = Execution(
        workers=jobs, retry=retry, interruption=interruption, ended=progress.ended
    )
    with signals(interruption, again, "interrupted; every cell that has ended is saved"):
        execution.run(loaded)


class _Progress:
    """Prints a line to stderr every few seconds, and one for every cell that fails."""

    def __init__(self, total: int, done: int) -> None:
        self._total, self._done = total, done
        self._told = float("-inf")
        if done:
            click.echo(f"{done} of {total} cells have ended before", err=True)

    def ended(self, cell: Cell, failure: str | None) -> None:
        self._done += 1
        if failure is not None:
            click.echo(f"{cell.name} failed: {failure}", err=True)
        now = time.monotonic()
        most_seconds = 5.0
        if now - self._told > most_seconds or self._done == self._total:
            self._told = now
            click.echo(f"{self._done}/{self._total} cells, last {cell.name}", err=True)


def _print(report: dict[str, Any]) -> None:
    def described(value: dict[str, Any] | None) -> str:
        if value is None or value["median"] is None:
            return "-"
        some = "" if value["reached"] == value["of"] else f" ({value['reached']}/{value['of']})"
        return f"{value['median']:.3g}{some}"

    table = Table.of(
        report["results"],
        ("task and pipeline", lambda row: f"{row['task']}  {row['pipeline']}"),
        ("to 95 %", lambda row: described(row["measurements_to"]["95"])),
        ("s to 95 %", lambda row: described(row["seconds_to"]["95"])),
        ("quality", lambda row: described(row["final_quality"])),
        ("best", lambda row: duration((row["best_seconds"] or {}).get("median"))),
        ("invalid", lambda row: described(row["invalid_share"])),
        ("seeds", _seeds),
    )
    print_table(table.header, table.rows)
    for title, scored in score_tables(report["scores"]).items():
        click.echo(f"\n{title}")
        print_table(scored.header, scored.rows)
    for row in report["results"]:
        for seed, words in row["failed_cells"].items():
            click.echo(f"{row['task']} / {row['pipeline']} / seed {seed}: {words}", err=True)


def _seeds(row: dict[str, Any]) -> str:
    """The number of seeds with a result, out of all that ended if some failed."""
    ended, failed = row["seeds"], len(row["failed_cells"])
    return f"{ended}/{ended + failed}" if failed else str(ended)


def _dry_run(loaded: Suite, *, as_json: bool) -> None:
    ended = {(cell.pipeline, cell.task, cell.seed) for cell in results(loaded)}
    rows = [
        {
            "task": pairing.task,
            "pipeline": pairing.pipeline,
            "live": pairing.measures_hardware,
            "measurements": pairing.measurements,
            "cells": len(loaded.seeds),
            "ended": sum((pairing.pipeline, pairing.task, s) in ended for s in loaded.seeds),
        }
        for pairing in loaded.pairings
    ]
    if as_json:
        click.echo(json.dumps({"suite": loaded.title, "folder": str(loaded.output), "cells": rows}))
        return
    table = [tuple("-" if cell is None else str(cell) for cell in row.values()) for row in rows]
    print_table(list(rows[0]), table)

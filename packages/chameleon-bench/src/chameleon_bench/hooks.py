"""Registers this package's commands, and writes the report of every run that ends."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from chameleon_core.events import RunFinished
from chameleon_core.plugins import CommandRecord, hookimpl


@hookimpl
def chameleon_commands() -> Iterable[CommandRecord]:
    """Comparing pipelines, and pages about runs."""
    yield CommandRecord(
        name="bench",
        summary="Compare pipelines on tasks over seeds, and write a report.",
        factory="chameleon_bench.commands.bench:command",
    )
    yield CommandRecord(
        name="report",
        summary="Write a page about a run: searches, comparisons, where time went.",
        factory="chameleon_bench.commands.report:command",
    )
    yield CommandRecord(
        name="compare",
        summary="Compare runs: times with intervals, a paired test, what differs.",
        factory="chameleon_bench.commands.compare:command",
    )
    yield CommandRecord(
        name="runs",
        summary="List the runs below a folder: how far they are, and their best times.",
        factory="chameleon_bench.commands.runs:command",
    )
    yield CommandRecord(
        name="watch",
        summary="Serve a run's page on this machine while the run goes on.",
        factory="chameleon_bench.commands.watch:command",
    )


@hookimpl
def chameleon_run_finished(event: RunFinished) -> None:
    """Write the report into the folder of a run that has ended."""
    from chameleon_bench.pages.run_page import write_report  # noqa: PLC0415 - rarely needed

    write_report(Path(event.folder))

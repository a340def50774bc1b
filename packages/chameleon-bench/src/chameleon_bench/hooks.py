"""Registers this package's commands, and writes a report at the end of every run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from chameleon_core.plugin_api import CommandRecord, PluginRecord, events, hookimpl, recorder

from chameleon_bench._rivals import KernelTunerOptions

_record = recorder("chameleon_bench")


@hookimpl
def chameleon_commands() -> Iterable[CommandRecord]:
    """The commands that compare pipelines and runs, and that write pages."""
    for name, summary in (
        ("bench", "Compare pipelines on tasks over seeds, and write a report."),
        ("report", "Write an HTML page about a run: results, searches and durations."),
        ("compare", "Compare runs by times, by a test, and by their pipelines and machines."),
        ("runs", "List the runs below a folder, with their states and best times."),
        ("watch", "Serve a run's page on this machine while the run goes on."),
    ):
        factory = f"chameleon_bench._commands.{name}:command"
        yield CommandRecord(name=name, summary=summary, factory=factory)


@hookimpl
def chameleon_rivals() -> Iterable[PluginRecord]:
    """Other tuners, for comparisons on recorded tables."""
    summary = "Kernel Tuner's strategies, on recorded tables"
    yield _record("kernel-tuner", summary, "_rivals.kernel_tuner:KernelTuner", KernelTunerOptions)


@hookimpl
def chameleon_run_finished(event: events.RunFinished) -> None:
    """Write the HTML report of a run that has ended into its folder, as a listener of events.

    Args:
        event: The event at the end of the run.
    """
    from chameleon_bench._pages.run_page import write_report  # noqa: PLC0415 - only at the end of a run

    write_report(Path(event.folder))

"""Writes the report of a run into its folder."""

from __future__ import annotations

from pathlib import Path

from chameleon_core.events.records import RunFinished
from chameleon_core.plugins.hookspecs import hookimpl

REPORT = "report.html"


def write_report(folder: Path, output: Path | None = None) -> Path:
    """Write the report of a run folder.

    Args:
        folder: the run's; it may be at work.
        output: the file; the folder's ``report.html`` if None.

    Returns:
        The file.

    Raises:
        RunFolderError: there is no run in the folder.
    """
    # The pages and their arrays are imported when one is written.
    from chameleon_core.report.collect import run_record  # noqa: PLC0415
    from chameleon_core.report.page import page_of  # noqa: PLC0415

    page = page_of(run_record(folder))
    file = output or folder / REPORT
    part = file.with_name(f".{file.name}.part")
    part.write_text(page, encoding="utf-8")
    part.replace(file)
    return file


class ReportWriter:
    """Writes the report when a run has ended.

    Args:
        folder: the run's.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @hookimpl
    def chameleon_run_finished(self, event: RunFinished) -> None:  # noqa: ARG002 - the folder has it
        """See ``EventHooks``."""
        write_report(self._folder)

"""Writes the report of a run into its folder."""

from __future__ import annotations

from pathlib import Path

from chameleon_system.files import write_whole

from chameleon_bench.pages.plots import write_sheets
from chameleon_bench.pages.run_page import page_of
from chameleon_bench.pages.run_plots import plots_of
from chameleon_bench.pages.run_record import run_record

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
    return write_whole(output or folder / REPORT, page_of(run_record(folder)))


def write_plots(folder: Path, output: Path) -> list[Path]:
    """Write the tables of a report's plots as CSV, a file for each plot.

    Args:
        folder: the run's; it may be at work.
        output: a folder; made where it is missing.

    Returns:
        The files.

    Raises:
        RunFolderError: there is no run in the folder.
    """
    return write_sheets(plots_of(run_record(folder)), output, subject="operator")

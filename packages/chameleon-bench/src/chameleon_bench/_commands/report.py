"""The command ``chameleon report``, which writes a run's HTML page and its plots as CSV."""

from __future__ import annotations

import json
from pathlib import Path

import click
from chameleon_core.plugin_api import RunFolderError

from chameleon_bench._pages.run_page import write_plots, write_report


@click.command("report", epilog="Example: chameleon report runs/net --plots plots")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file, instead of RUN/report.html.",
)
@click.option(
    "--plots",
    "sheets",
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the data of each plot as CSV into a folder as well.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the files' names as a JSON object.")
def command(folder: Path, output: Path | None, sheets: Path | None, as_json: bool) -> None:
    """Write an HTML page about the run in folder RUN: its results, its searches and its durations.

    The page is a single file. If the run has not ended, the page shows its results so far. Every
    run writes this page when it ends.
    """
    hint = "Name a file elsewhere with -o, or another folder with --plots."
    with RunFolderError.on_os_error(f"the report of {folder} cannot be written", hint=hint):
        file = write_report(folder, output)
        plots = [] if sheets is None else write_plots(folder, sheets)
    if as_json:
        named = {"run": str(folder.absolute()), "report": str(file.absolute())}
        listed = {} if sheets is None else {"plots": [str(plot.absolute()) for plot in plots]}
        click.echo(json.dumps({**named, **listed}))
    else:
        for path in (file, *plots):
            click.echo(str(path))

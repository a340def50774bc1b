"""``chameleon report``: a run as one HTML page."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("report")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file, instead of RUN/report.html.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the file's name as a JSON object.")
def command(folder: Path, output: Path | None, as_json: bool) -> None:
    """Write a page about folder RUN: searches, comparisons, where time went.

    The page needs nothing else, and shows what is known so far of a run that has not ended.
    Every run writes it when it ends.
    """
    from chameleon_core.errors import RunFolderError  # noqa: PLC0415 - --help is quick

    from chameleon_bench.pages.run_report import write_report  # noqa: PLC0415

    try:
        file = write_report(folder, output)
    except OSError as error:
        raise RunFolderError(
            f"the report of {folder} cannot be written: {error.strerror or error}",
            hint="Name a file elsewhere with -o.",
        ) from error
    if as_json:
        click.echo(json.dumps({"run": str(folder.absolute()), "report": str(file.absolute())}))
    else:
        click.echo(str(file))

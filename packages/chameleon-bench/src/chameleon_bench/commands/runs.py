"""``chameleon runs``: the runs below a folder."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
from chameleon_cli.result_rows import duration
from chameleon_cli.results_table import print_table
from chameleon_core.errors import RunFolderError

from chameleon_bench.runs.listing import listed_runs


@click.command("runs")
@click.argument("folder", default="runs", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(folder: Path, as_json: bool) -> None:
    """List the runs below FOLDER (`runs` where none is given), the last ones at the end.

    The time is that of one inference of a network, of the one operator, or the sum over several
    operators. A folder that cannot be read is listed with the reason.
    """
    if not folder.is_dir():
        raise RunFolderError(
            f"there is no folder {folder}",
            hint="Name the folder that your runs are in; a pipeline's 'output' says where that is.",
        )
    runs = listed_runs(folder)
    if as_json:
        value = {"folder": str(folder.absolute()), "runs": [run.to_json() for run in runs]}
        click.echo(json.dumps(value))
        return
    if not runs:
        click.echo(f"there are no runs below {folder}", err=True)
        return
    rows = [
        (
            run.name,
            run.state,
            run.model or "-",
            run.target or "-",
            str(run.operators),
            str(run.measurements),
            duration(run.seconds),
            run.seconds_of or "-",
            "-" if run.at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(run.at)),
        )
        for run in runs
    ]
    header = ("run", "state", "model", "target", "operators", "measured", "best", "of", "when")
    print_table(header, rows)
    for run in runs:
        if run.because:
            click.echo(f"{run.name}: {run.state}: {run.because}", err=True)

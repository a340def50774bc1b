"""``chameleon runs``: the runs below a folder."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
from chameleon_cli.result_rows import duration
from chameleon_cli.results_table import print_table
from chameleon_core.errors import RunFolderError


@click.command("runs")
@click.argument("folder", default="runs", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(folder: Path, as_json: bool) -> None:
    """List the runs below FOLDER (`runs` where none is given), the last ones at the end.

    The time is that of one inference of a network, of the one operator, or the sum over several
    operators. A folder that cannot be read is listed with the reason.
    """
    from chameleon_bench.runs.listing import listed_runs  # noqa: PLC0415

    if not folder.is_dir():
        raise RunFolderError(
            f"there is no folder {folder}",
            hint="Name the folder that your runs are in; a pipeline's 'output' says where that is.",
        )
    found = listed_runs(folder)
    if as_json:
        value = {"folder": str(folder.absolute()), "runs": [one.to_json() for one in found]}
        click.echo(json.dumps(value))
        return
    if not found:
        click.echo(f"there are no runs below {folder}", err=True)
        return

    rows = [
        (
            one.name,
            one.state,
            one.model or "-",
            one.target or "-",
            str(one.operators),
            str(one.measurements),
            duration(one.seconds),
            one.seconds_of or "-",
            "-" if one.at is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(one.at)),
        )
        for one in found
    ]
    header = ("run", "state", "model", "target", "operators", "measured", "best", "of", "when")
    print_table(header, rows)
    for one in found:
        if one.because:
            click.echo(f"{one.name}: {one.state}: {one.because}", err=True)

"""``chameleon status``: shows the state of a run, while it runs or afterwards."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import click
from chameleon_core.api import RunView

from chameleon_cli._result_rows import duration, failures, network_json, network_sentence
from chameleon_cli._results_table import print_table


@click.command("status", epilog="Example: chameleon status runs/net")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(folder: Path, as_json: bool) -> None:
    """Show the state of the run in folder RUN: measurements, failures and best times."""
    with RunView(folder) as run:
        network = run.network
        value = {"run": str(run.folder), **describe(run)}
    if as_json:
        click.echo(json.dumps({**value, "network": network_json(network)}))
        return

    # An ask-and-tell search has no target.
    target = "" if value["target"] is None else f", {value['target']}"
    click.echo(f"{value['run']}: {value['state']}, {value['seconds']:.1f} s{target}")
    if value["because"]:
        click.echo(f"because: {value['because']}")
    if network is not None:
        click.echo(network_sentence(network))
    missed = [task["name"] for task in value["operators"] if not task["measurements"]]
    if missed and value["state"] != "running":
        click.echo(f"never measured: {', '.join(missed)}")
    origins = Counter[str]()
    for task in value["operators"]:
        origins.update(task["origins"])
    if origins:
        text = ", ".join(f"{origin} {count}" for origin, count in origins.items())
        click.echo(f"where configurations came from: {text}")
    rows = [
        (
            task["name"],
            str(task["measurements"]),
            failures(task["failed"]),
            duration(task["seconds"]),
            task["seconds_from"] or "-",
            "-" if not task["seconds"] else f"{task['flop'] / task['seconds'] / 1e9:.1f}",
            f"{task['wall_seconds']:.1f}",
        )
        for task in value["operators"]
    ]
    header = ("operator", "measurements", "failed", "best", "from", "GFLOP/s", "seconds")
    print_table(header, rows)


def describe(run: RunView) -> dict[str, Any]:
    """The state, seconds and operators of a run as JSON values.

    ``best_seconds`` of an operator is its best time in the search. ``seconds`` is from the
    comparison if there was one, and ``seconds_from`` names the source of this time.

    Args:
        run: the run folder.
    """
    final = {operator.stored.id: operator for operator in run.operators}
    operators = []
    for operator in run.searched:
        known, flop = operator.result, operator.stored.task.flop
        best = known.search_seconds
        timed = final.get(operator.stored.id, operator).time
        operators.append(
            {
                "name": known.name,
                "measurements": known.measurements,
                "origins": dict(known.origins),
                "failed": dict(known.failed),
                "best_seconds": best,
                "seconds": None if timed is None else timed.seconds,
                "seconds_from": None if timed is None else str(timed.source),
                "flop": flop,
                "gflops": None if best is None else flop / best / 1e9,
                "wall_seconds": known.spending.total,
                "spent_seconds": attrs.asdict(known.spending),
            }
        )
    standing = run.standing
    return {
        "state": str(standing.state),
        "because": standing.because,
        "target": run.store.fact("target"),
        "runner": run.store.fact("runner"),
        "versions": run.versions,
        "seconds": run.seconds,
        "operators": operators,
    }

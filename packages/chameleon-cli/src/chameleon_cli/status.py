"""``chameleon status``: how far a run is, while it runs or afterwards."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from chameleon_cli.network_words import network_json, network_sentence
from chameleon_cli.results_table import duration, failures, print_table

if TYPE_CHECKING:
    from chameleon_core.run_summary import NetworkSummary
    from chameleon_core.store import RecordStore


@click.command("status")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(folder: Path, as_json: bool) -> None:
    """Show how far the run in folder RUN is."""
    from chameleon_core.run_folder import read_store  # noqa: PLC0415

    with read_store(folder) as store:
        network = _network(folder, store)
        value = {"run": str(folder.absolute()), **describe(folder, store)}
    if as_json:
        click.echo(json.dumps({**value, "network": network_json(network)}))
        return

    # What a program tunes by asking and telling has no target.
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
        told = ", ".join(f"{origin} {count}" for origin, count in origins.items())
        click.echo(f"where configurations came from: {told}")
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


def describe(folder: Path, store: RecordStore) -> dict[str, Any]:
    """State, seconds and tasks of a run as JSON values.

    An operator's ``best_seconds`` is the search's; ``seconds`` is from the comparison where there
    was one, and ``seconds_from`` says which.
    """
    from chameleon_core.loop.end.comparison import interim_result  # noqa: PLC0415
    from chameleon_core.run_summary import finished_result, standing_of, time_of  # noqa: PLC0415

    result = finished_result(folder, store)
    final = {(one.task["name"], one.fingerprint): one for one in result.operators} if result else {}
    operators = []
    for stored in store.present_tasks():
        known = interim_result(store, stored)
        best = known.search_seconds
        timed = time_of(store, stored, final.get((known.name, known.fingerprint), known))
        operators.append(
            {
                "name": known.name,
                "measurements": known.measurements,
                "origins": dict(known.origins),
                "failed": dict(known.failed),
                "best_seconds": best,
                "seconds": None if timed is None else timed.seconds,
                "seconds_from": None if timed is None else str(timed.source),
                "flop": stored.task.flop,
                "gflops": None if best is None else stored.task.flop / best / 1e9,
                "wall_seconds": known.spending.total,
                "spent_seconds": attrs.asdict(known.spending),
            }
        )
    standing = standing_of(folder, store)
    return {
        "state": str(standing.state),
        "because": standing.because,
        "target": store.fact("target"),
        "runner": store.fact("runner"),
        "versions": store.fact("versions") or {},
        "seconds": store.fact("seconds") or 0.0,
        "operators": operators,
    }


def _network(folder: Path, store: RecordStore) -> NetworkSummary | None:
    from chameleon_core.run_summary import (  # noqa: PLC0415
        finished_result,
        network_summary,
        operators_of,
    )

    result = finished_result(folder, store)
    return network_summary(store, result, operators_of(store, result))

"""``chameleon status``: how far a run is, while it runs or afterwards."""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

if TYPE_CHECKING:
    from chameleon_core.store import RecordStore


@click.command("status")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(folder: Path, as_json: bool) -> None:
    """Show how far the run in folder RUN is."""
    from chameleon_core.run_folder import read_store  # noqa: PLC0415

    with read_store(folder) as store:
        value = {"run": str(folder.absolute()), **describe(folder, store)}
    if as_json:
        click.echo(json.dumps(value))
        return
    from chameleon_cli.results_table import duration, failures, print_table  # noqa: PLC0415

    click.echo(f"{value['run']}: {value['state']}, {value['seconds']:.1f} s, {value['target']}")
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
            duration(task["best_seconds"]),
            "-" if task["gflops"] is None else f"{task['gflops']:.1f}",
            f"{task['wall_seconds']:.1f}",
        )
        for task in value["operators"]
    ]
    print_table(("operator", "measurements", "failed", "best", "GFLOP/s", "seconds"), rows)


def describe(folder: Path, store: RecordStore) -> dict[str, Any]:
    """State, seconds and tasks of a run as JSON values."""
    from chameleon_core.loop.end.operator_result import interim_result  # noqa: PLC0415

    operators = []
    for stored in store.tasks():
        known = interim_result(store, stored)
        best = known.search_seconds
        operators.append(
            {
                "name": known.name,
                "measurements": known.measurements,
                "origins": dict(known.origins),
                "failed": dict(known.failed),
                "best_seconds": best,
                "gflops": None if best is None else stored.task.flop / best / 1e9,
                "wall_seconds": known.spending.total,
                "spent_seconds": attrs.asdict(known.spending),
            }
        )
    return {
        "state": _state(folder, store),
        "target": store.fact("target"),
        "runner": store.fact("runner"),
        "versions": store.fact("versions") or {},
        "seconds": store.fact("seconds") or 0.0,
        "operators": operators,
    }


def _state(folder: Path, store: RecordStore) -> str:
    from chameleon_core.run_folder import LOCK  # noqa: PLC0415

    try:
        lock = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        lock = None
    if lock is not None:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return "running"
        finally:
            os.close(lock)
    return "finished" if store.fact("finished") is not None else "interrupted"

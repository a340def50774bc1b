"""``chameleon best``: the best configuration of every operator of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from chameleon_core.store import RecordStore

_SO_FAR = (
    "name",
    "measurements",
    "search_seconds",
    "config",
    "best",
    "space",
    "fingerprint",
    "task",
)
"""What is told of an operator before the final comparison."""


@click.command("best")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(folder: Path, as_json: bool) -> None:
    """Show the best configuration of every operator in folder RUN.

    Of a finished run it is the one that won the final comparison, of another one the fastest
    measured so far.
    """
    from chameleon_core.errors import ExitCode  # noqa: PLC0415
    from chameleon_core.run_folder import read_store  # noqa: PLC0415

    with read_store(folder) as store:
        operators = _operators(store)
    if as_json:
        click.echo(json.dumps({"run": str(folder.absolute()), "operators": operators}))
    else:
        _print(operators)
    if not any(operator["best"] for operator in operators):
        raise SystemExit(ExitCode.NO_VALID_RESULT)


def _operators(store: RecordStore) -> list[dict[str, Any]]:
    """Per operator the decoded configuration with its costs."""
    finished = store.fact("finished")
    if finished is not None:
        result = finished["result"]
        instead = {one["name"]: one["kernel"] for one in result["network"].get("unmeasured", ())}
        found: list[dict[str, Any]] = result["operators"]
        return [
            {**operator, "compared": True, "delivered_with": instead.get(operator["name"])}
            for operator in found
        ]
    from chameleon_core.loop.end.operator_result import interim_result  # noqa: PLC0415

    known = [interim_result(store, stored).to_json() for stored in store.tasks()]
    return [{**{key: one[key] for key in _SO_FAR}, "compared": False} for one in known]


def _print(operators: list[dict[str, Any]]) -> None:
    from chameleon_cli.results_table import duration  # noqa: PLC0415

    for operator in operators:
        if operator["best"] is None:
            measured = operator["measurements"]
            why = "no configuration has a time" if measured else "never measured"
            instead = operator.get("delivered_with")
            tail = "" if instead is None else f"; the network has its {instead}"
            click.echo(f"{operator['name']}: {why}{tail}")
            continue
        if operator["compared"]:
            times = f"{duration(operator['tuned_seconds'])}"
            if operator["ratio"] is not None:
                times += f", {operator['ratio']:.3f} x the vendor's speed"
        else:
            times = f"{duration(operator['search_seconds'])} so far, not compared yet"
        click.echo(f"{operator['name']}: {times}")
        for name, value in operator["best"].items():
            click.echo(f"  {name}: {json.dumps(value)}")

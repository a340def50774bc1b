"""``chameleon best``: the best configuration of every operator of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from chameleon_core.api import RunView
from chameleon_core.plugin_api import ExitCode

from chameleon_cli._result_rows import duration, network_json, network_sentence

_SO_FAR = (
    "name",
    "measurements",
    "search_seconds",
    "seconds_from",
    "config",
    "best",
    "space",
    "fingerprint",
    "task",
)
"""Keys of an operator's result that are shown before the final comparison."""


@click.command("best", epilog="Example: chameleon best runs/net")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(folder: Path, as_json: bool) -> None:
    """Show the best configuration of every operator in the run folder RUN.

    In a finished run, it is the winner of the final comparison. In a run that has not finished, it
    is the fastest configuration so far. Each time has its source: the comparison at the end, or the
    search. If the model is a network, the network's time comes first.
    """
    with RunView(folder) as run:
        network, operators = run.network, _operators(run)
    if as_json:
        value = {"network": network_json(network), "operators": operators}
        click.echo(json.dumps({"run": str(folder.absolute()), **value}))
    else:
        if network is not None:
            click.echo(network_sentence(network))
        _print(operators)
    if not any(operator["best"] for operator in operators):
        raise SystemExit(ExitCode.NO_VALID_RESULT)


def _operators(run: RunView) -> list[dict[str, Any]]:
    """For each operator, its best configuration and times as JSON values."""
    unmeasured = () if run.result is None else run.result.network.unmeasured
    instead = {task.name: task.kernel for task in unmeasured}
    lines = []
    for operator in run.operators:
        timed = operator.time
        value = operator.result.to_json()
        value["seconds_from"] = None if timed is None else str(timed.source)
        if run.result is None:
            lines.append({**{key: value[key] for key in _SO_FAR}, "compared": False})
        else:
            delivered_with = instead.get(value["name"])
            lines.append({**value, "compared": True, "delivered_with": delivered_with})
    return lines


def _print(operators: list[dict[str, Any]]) -> None:
    for operator in operators:
        if operator["best"] is None:
            measured = operator["measurements"]
            why = "no configuration has a time" if measured else "never measured"
            instead = operator.get("delivered_with")
            tail = "" if instead is None else f"; the network has its {instead}"
            click.echo(f"{operator['name']}: {why}{tail}")
            continue
        if operator["compared"]:
            source = operator["seconds_from"] or "search"
            times = f"{duration(operator['tuned_seconds'])}, from the {source}"
            if operator["ratio"] is not None:
                times += f", {operator['ratio']:.3f} x the vendor's speed"
        else:
            times = (
                f"{duration(operator['search_seconds'])} so far, from the search; not compared yet"
            )
        click.echo(f"{operator['name']}: {times}")
        for name, value in operator["best"].items():
            click.echo(f"  {name}: {json.dumps(value)}")

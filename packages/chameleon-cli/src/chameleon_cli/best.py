"""``chameleon best``: the best configuration of every operator of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from chameleon_core.errors import ExitCode
from chameleon_core.loop.end.operator_result import OperatorResult
from chameleon_core.task import Task

from chameleon_cli.network_words import network_json, network_sentence
from chameleon_cli.results_table import duration

if TYPE_CHECKING:
    from chameleon_core.loop.end.result import RunResult
    from chameleon_core.store import RecordStore

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
"""What is told of an operator before the final comparison."""


@click.command("best")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(folder: Path, as_json: bool) -> None:
    """Show the best configuration of every operator in folder RUN.

    Of a finished run it is the one that won the final comparison, of another one the fastest
    measured so far. Each time is told with what it was taken by: the comparison at the end, or the
    search. Of a network its own time comes first.
    """
    from chameleon_core.run_folder import read_store  # noqa: PLC0415
    from chameleon_core.run_summary import (  # noqa: PLC0415
        finished_result,
        network_summary,
        operators_of,
    )

    with read_store(folder) as store:
        result = finished_result(folder, store)
        found = operators_of(store, result)
        network = network_summary(store, result, found)
        operators = _operators(store, result, found)
    if as_json:
        value = {"network": network_json(network), "operators": operators}
        click.echo(json.dumps({"run": str(folder.absolute()), **value}))
    else:
        if network is not None:
            click.echo(network_sentence(network))
        _print(operators)
    if not any(operator["best"] for operator in operators):
        raise SystemExit(ExitCode.NO_VALID_RESULT)


def _operators(
    store: RecordStore, result: RunResult | None, found: Sequence[OperatorResult]
) -> list[dict[str, Any]]:
    """Per operator the decoded configuration with its costs."""
    from chameleon_core.run_summary import time_of  # noqa: PLC0415

    rows = {(one.task.key, one.space, one.fingerprint): one for one in store.tasks()}
    unmeasured = () if result is None else result.network.unmeasured
    instead = {task.name: task.kernel for task in unmeasured}
    told = []
    for operator in found:
        value = operator.to_json()
        row = rows[Task(**operator.task).key, operator.space, operator.fingerprint]
        timed = time_of(store, row, operator)
        value["seconds_from"] = None if timed is None else str(timed.source)
        if result is None:
            told.append({**{key: value[key] for key in _SO_FAR}, "compared": False})
        else:
            delivered_with = instead.get(operator.name)
            told.append({**value, "compared": True, "delivered_with": delivered_with})
    return told


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

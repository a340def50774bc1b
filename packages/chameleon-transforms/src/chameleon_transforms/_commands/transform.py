"""The command ``chameleon transform``, which searches for a faster network.

The network should still reach the same accuracy when it is trained.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from chameleon_cli.api import (
    given_again,
    network_remarks,
    output_option,
    print_table,
    progress_for,
    results_alone,
    set_option,
    signals,
)
from chameleon_core.api import Interruption, NetworkResult, ResolvedPipeline, load_pipeline

from chameleon_transforms._search.front import Point

if TYPE_CHECKING:
    from chameleon_transforms._session import Session


@click.command("transform", epilog="Example: chameleon transform pipeline.yaml --point 3")
@click.argument("pipeline", type=click.Path(path_type=Path))
@set_option("transform.candidates=200")
@click.option("--point", type=int, help="Deliver this point of the front, searching if needed.")
@click.option("--again", is_flag=True, help="Search again, even if a front is known.")
@click.option("--no-compile", is_flag=True, help="Write code and weights of --point only.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@output_option("The run folder")
def command(  # noqa: PLR0917 - click passes them by name
    pipeline: Path,
    overrides: tuple[str, ...],
    point: int | None,
    again: bool,
    no_compile: bool,
    as_json: bool,
    output: Path | None,
) -> None:
    """Search transformed networks of PIPELINE for latency, score and number of weights.

    Writes the front (front.json, front.csv, front.html) into the folder `transform` of the output.
    With --point N it also writes that network's code, weights and a script that trains it again,
    and tunes and compiles it. Chameleon keeps measurements, and repeats none.
    """
    repeat, overrides = given_again("transform", pipeline, overrides, output)
    interruption = Interruption()
    progress = progress_for(sys.stderr)
    try:
        with results_alone(), signals(interruption, repeat):
            from chameleon_transforms._session import Session  # noqa: PLC0415 - imports torch

            session = Session(_resolved(pipeline, overrides), [progress], interruption)
            front = None if again or point is None else session.read_front()
            result = session.run(_print_progress) if front is None else front
            delivered = None if point is None else _delivered(session, result, point, no_compile)
    finally:
        progress.close()
    if as_json:
        line = {"folder": str(session.folder), **result, "delivered": delivered}
        click.echo(json.dumps(line, default=NetworkResult.to_json))
    else:
        _print(session.folder, result, delivered)
    # The front never contains the original network.
    sys.exit(0 if result["front"] else 1)


def _resolved(pipeline: Path, overrides: tuple[str, ...]) -> ResolvedPipeline:
    resolved = load_pipeline(pipeline, overrides)
    if "transform" in resolved.sections:
        return resolved
    return load_pipeline(pipeline, (*overrides, "transform={}"))


def _print_progress(judged: int, total: int) -> None:
    click.echo(f"{judged} of {total} networks judged", err=True)


def _delivered(
    session: Session, result: dict[str, Any], point: int, no_compile: bool
) -> dict[str, Any]:
    folder, fresh = session.deliver(result, point)
    line: dict[str, Any] = {"folder": str(folder), "initial_weights": fresh, "network": None}
    if not no_compile:
        line["network"] = session.compile(folder).network
    return line


def _print(folder: Path, result: dict[str, Any], delivered: dict[str, Any] | None) -> None:
    original, *points = map(Point.from_json, (result["original"], *result["front"]))
    score = result["score"]
    how = "measured" if result["measured"] else "predicted"
    header = ("point", f"ms, {how}", "faster", score, "weights", "transforms", "fewer channels")
    names = ("original", *map(str, range(len(points))))
    rows = [
        (name, *point.cells(original, score), str(len(point.transforms)), str(len(point.channels)))
        for name, point in zip(names, (original, *points), strict=True)
    ]
    click.echo(
        f"{result['judged']} networks judged in {result['seconds']:.0f} s, {result['accepted']} "
        f"accepted; times are sums of convolutions"
    )
    print_table(header, rows)
    click.echo(f"front: {folder / 'front.html'}")
    if delivered is None:
        return
    where = delivered["folder"]
    click.echo(f"network: {where}; train it again: python {Path(where) / 'retrain.py'}")
    for name in delivered["initial_weights"]:
        click.echo(f"{name} begins with new weights: nothing is known that would carry them over")
    network = delivered["network"]
    if network is not None:
        seconds = network.latency_seconds
        timed = "" if seconds is None else f", {1e3 * seconds:.3g} ms"
        path = network.folder or f"not there: {network.failure}"
        click.echo(f"compiled, with weights from before training: {path}{timed}")
        for line in network_remarks(network):
            click.echo(line)
        if network.unmeasured:
            click.echo("repeat the command with a larger `budget`, which is for this network alone")

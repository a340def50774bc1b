"""``chameleon compile``: the network of a run, from what is stored, without tuning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from chameleon_cli.options import trust_option
from chameleon_core.errors import ChameleonError, ExitCode
from chameleon_core.pipeline.schema import Subject

if TYPE_CHECKING:
    from chameleon_core.network_result import NetworkResult
    from chameleon_core.store import RecordStore


@click.command("compile")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the network goes, instead of RUN/network.",
)
@click.option(
    "--max-error",
    type=click.FloatRange(min=0.0, min_open=True),
    help="Of a run with a precision: largest error, instead of the pipeline's.",
)
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(
    folder: Path,
    *,
    output: Path | None,
    max_error: float | None,
    trust_source: bool,
    as_json: bool,
) -> None:
    """Compile, verify and time the network of folder RUN with the best it has measured.

    Nothing is tuned. Operators that were never measured get their first guess. If the model,
    `calibrate` or `metric` of the run is Python of yours, --trust-source is needed.
    """
    from chameleon_cli.results_table import print_network  # noqa: PLC0415 - --help is quick
    from chameleon_cli.streams import results_alone  # noqa: PLC0415
    from chameleon_core.loop.end.result import slower  # noqa: PLC0415
    from chameleon_core.run_folder import NETWORK, read_store  # noqa: PLC0415

    from chameleon_networks.commands.runs import pipeline_of, with_max_error  # noqa: PLC0415

    with results_alone(), read_store(folder) as store:
        output = (output or folder / NETWORK).absolute()
        pipeline = pipeline_of(store, folder, trust_source=trust_source)
        if max_error is not None:
            pipeline = with_max_error(pipeline, max_error)
        result = _compiled(store, pipeline, folder, output)
    if as_json:
        click.echo(json.dumps({"run": str(folder.absolute()), "network": result.to_json()}))
    else:
        behind = slower(result, ())
        if behind is not None:
            click.echo(behind)
        print_network(result)
    if result.failure is not None:
        error = ChameleonError(result.failure, hint="See the log above for the reason.")
        click.echo(str(error), err=True)
        raise SystemExit(ExitCode.NO_VALID_RESULT)


def _compiled(store: RecordStore, pipeline: Subject, folder: Path, output: Path) -> NetworkResult:
    from chameleon_core.stages import Delivery  # noqa: PLC0415

    from chameleon_networks.commands.runs import (  # noqa: PLC0415
        guesses_for,
        network_of,
        threads_of,
        winners_of,
    )

    space = pipeline.space.create()
    budget = (store.fact("pipeline") or {})["document"].get("budget", {})
    return network_of(pipeline, store).deliver(
        Delivery(
            target=str(store.fact("target")),
            winners=(*winners_of(store), *guesses_for(store, pipeline, folder)),
            space=space,
            folder=output,
            threads=threads_of(store),
            measures=budget.get("measurements") != 0,
        )
    )

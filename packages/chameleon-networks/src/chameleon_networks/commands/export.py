"""``chameleon export``: a run's winners as files that are used without this package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click
from chameleon_cli.options import trust_option
from chameleon_core.errors import ConfigError, RunFolderError
from chameleon_core.words import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chameleon_core.stages import Winner

METASCHEDULE, TVMSCRIPT, LIBRARY, C = "metaschedule", "tvmscript", "library", "c"


@click.command("export")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "form",
    required=True,
    type=click.Choice([METASCHEDULE, TVMSCRIPT, LIBRARY, C]),
    help="A MetaSchedule database, one scheduled function per operator as TVMScript, one library "
    "per operator for Python, or a bundle for C.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the files go.",
)
@click.option("--task", "only", multiple=True, help="Only this operator. May be given again.")
@click.option("--name", help="What a bundle for C is called; else as its folder.")
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(
    folder: Path,
    form: str,
    output: Path,
    *,
    only: tuple[str, ...],
    name: str | None,
    trust_source: bool,
    as_json: bool,
) -> None:
    """Write the best configurations of folder RUN for use without Chameleon.

    A MetaSchedule database holds what was tuned in the `sketch` space. The functions of any
    space can be written as TVMScript, or compiled: `library` writes an operator that Python loads
    with NumPy alone, and `c` a bundle of the network, or of an operator, which needs no Python.
    One operator lies in the output folder itself; of several, each has a folder in it.

    --trust-source is needed for a MetaSchedule database if the model of the run is Python of yours,
    and for libraries of operators that are TensorIR functions.
    """
    from chameleon_cli.streams import results_alone  # noqa: PLC0415 - --help is quick
    from chameleon_core.loop.start.frontend import recalled  # noqa: PLC0415
    from chameleon_core.loop.start.tasks import frontend_of  # noqa: PLC0415
    from chameleon_core.run_folder import NETWORK, read_store  # noqa: PLC0415
    from chameleon_core.trust import check_tasks  # noqa: PLC0415

    from chameleon_networks.commands.runs import pipeline_of, threads_of, winners_of  # noqa: PLC0415
    from chameleon_networks.delivery.bucketed import BucketedFrontend  # noqa: PLC0415
    from chameleon_networks.delivery.networks import NetworkFrontend  # noqa: PLC0415

    with results_alone():
        with read_store(folder) as store:
            # A MetaSchedule database alone needs the model beside the records.
            trusted = trust_source or form != METASCHEDULE
            pipeline = pipeline_of(store, folder, trust_source=trusted)
            winners = _chosen(winners_of(store), only, folder)
            frontend = frontend_of(pipeline)
            recalled(pipeline, frontend, store)
            threads = threads_of(store)
        space = pipeline.space
        whole = not only and isinstance(frontend, NetworkFrontend | BucketedFrontend)
        if name is not None and not (form == C and (whole or len(winners) == 1)):
            raise click.UsageError("--name is for one bundle for C, of a network or an operator")
        if form == METASCHEDULE:
            from chameleon_networks.export.metaschedule import to_metaschedule  # noqa: PLC0415

            network = frontend.network if isinstance(frontend, NetworkFrontend) else None
            made = to_metaschedule(winners, space.create(), space.options, output, network=network)
        elif form == TVMSCRIPT:
            from chameleon_networks.export.metaschedule import to_tvmscript  # noqa: PLC0415

            made = to_tvmscript(winners, space.create(), output)
        elif form == C and whole:
            from chameleon_networks.export.bundles import network_to_c  # noqa: PLC0415

            made = network_to_c(folder / NETWORK, output, name)
        else:
            from chameleon_networks.export.bundles import to_c, to_libraries  # noqa: PLC0415

            check_tasks(folder, [one.task for one in winners], trust_source=trust_source)
            if form == C:
                made = to_c(winners, space.create(), output, threads, name)
            else:
                made = to_libraries(winners, space.create(), output, threads)
    if as_json:
        files = [str(file.absolute()) for file in made.files]
        click.echo(json.dumps({"run": str(folder.absolute()), "tasks": made.tasks, "files": files}))
    else:
        for file in made.files:
            click.echo(str(file))
    notes = list(made.notes)
    if form == METASCHEDULE and isinstance(frontend, BucketedFrontend):
        notes.append("a network in buckets of shapes is no single module; there is no network.json")
    for note in notes:
        click.echo(f"note: {note}", err=True)


def _chosen(winners: Sequence[Winner], only: tuple[str, ...], folder: Path) -> list[Winner]:

    names = [winner.task.name for winner in winners]
    chosen: set[str] = set()
    for name in only:
        # An operator of a network is called by its module and its sizes; its module will do.
        found = [name] if name in names else [one for one in names if one.split(" ")[0] == name]
        if not found:
            known = dict.fromkeys(part for one in names for part in (one, one.split(" ")[0]))
            raise ConfigError(
                f"{folder} has no measured operator {name!r}{did_you_mean(name, known)}",
                hint=f"It has {', '.join(names) or 'none'}.",
            )
        chosen.update(found)
    if not winners:
        raise RunFolderError(
            f"no configuration in {folder} has a time", hint="Run `chameleon run` first."
        )
    return [winner for winner in winners if not only or winner.task.name in chosen]

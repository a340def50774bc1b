"""``chameleon export``: a run's winners as files that TVM reads without this package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chameleon_core.stages import Winner

METASCHEDULE, TVMSCRIPT = "metaschedule", "tvmscript"


@click.command("export")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "form",
    required=True,
    type=click.Choice([METASCHEDULE, TVMSCRIPT]),
    help="A MetaSchedule database, or one scheduled function per operator as TVMScript.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the files go.",
)
@click.option("--task", "only", multiple=True, help="Only this operator. May be given again.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(folder: Path, form: str, output: Path, only: tuple[str, ...], as_json: bool) -> None:
    """Write the best configurations of folder RUN for TVM alone.

    A MetaSchedule database holds what was tuned in the `sketch` space. The functions of any
    space can be written as TVMScript.
    """
    from chameleon_cli.streams import results_alone  # noqa: PLC0415 - --help is quick
    from chameleon_core.loop.start.frontend import recalled  # noqa: PLC0415
    from chameleon_core.loop.start.tasks import frontend_of  # noqa: PLC0415
    from chameleon_core.run_folder import read_store  # noqa: PLC0415

    from chameleon_tvm.commands.runs import pipeline_of, winners_of  # noqa: PLC0415
    from chameleon_tvm.frontends.bucketed import BucketedFrontend  # noqa: PLC0415
    from chameleon_tvm.frontends.networks import NetworkFrontend  # noqa: PLC0415
    from chameleon_tvm.metaschedule.export import to_metaschedule, to_tvmscript  # noqa: PLC0415

    with results_alone():
        with read_store(folder) as store:
            pipeline = pipeline_of(store, folder)
            winners = _chosen(winners_of(store), only, folder)
            frontend = frontend_of(pipeline)
            recalled(pipeline, frontend, store)
        space = pipeline.space
        if form == METASCHEDULE:
            network = frontend if isinstance(frontend, NetworkFrontend) else None
            made = to_metaschedule(winners, space.create(), space.options, output, network=network)
        else:
            made = to_tvmscript(winners, space.create(), output)
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
    from chameleon_core.errors import ConfigError, RunFolderError  # noqa: PLC0415
    from chameleon_core.words import did_you_mean  # noqa: PLC0415

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

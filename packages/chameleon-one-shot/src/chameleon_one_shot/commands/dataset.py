"""``chameleon dataset``: data sets of measured candidates."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import click
from chameleon_cli.options import given_again, output_option, set_option, trust_option
from chameleon_cli.progress import progress_for
from chameleon_cli.signals import signals
from chameleon_cli.streams import results_alone
from chameleon_core.errors import ExitCode
from chameleon_core.loop.interruption import Interruption, RunInterrupted
from chameleon_core.plugins.registry import default_registry

from chameleon_one_shot.dataset.plan import Plan, read_plan

if TYPE_CHECKING:
    from chameleon_one_shot.dataset.collecting import Collected


@click.group("dataset")
def command() -> None:
    """Collect measurements of many tasks, or import, merge and check them."""


@command.command("collect")
@click.argument("plan", type=click.Path(path_type=Path))
@set_option("tasks=20")
@trust_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@output_option("The data set's folder")
def collect(
    plan: Path,
    *,
    overrides: tuple[str, ...],
    trust_source: bool,
    as_json: bool,
    output: Path | None,
) -> None:
    """Measure tasks like those of the networks that PLAN names.

    The same command again continues an interrupted collection: nothing is measured twice. Ctrl-C
    stops in order, a second one at once. --trust-source is needed if a network of the plan has
    TensorIR functions of yours.
    """
    again, overrides = given_again("dataset collect", plan, overrides, output)
    with results_alone():
        found = _collect(read_plan(plan, overrides), again, trust_source=trust_source)
    if as_json:
        told = {
            "dataset": str(found.folder),
            "tasks": found.tasks,
            "candidates": found.candidates,
            "failed_runs": list(found.failed_runs),
        }
        click.echo(json.dumps(told))
    else:
        click.echo(f"{found.folder}: {found.tasks} tasks, {found.candidates} candidates")
    for sentence in found.failed_runs:
        click.echo(sentence, err=True)
    sys.exit(ExitCode.NO_VALID_RESULT if found.failed_runs else ExitCode.OK)


def _collect(plan: Plan, again: str, *, trust_source: bool) -> Collected:
    from chameleon_one_shot.dataset.collecting import Collector  # noqa: PLC0415

    interruption = Interruption()
    collector = Collector(
        plan=plan,
        registry=default_registry(),
        interruption=interruption,
        say=lambda line: click.echo(line, err=True),
        display=lambda: contextlib.closing(progress_for(sys.stderr)),
        trust_source=trust_source,
    )
    try:
        with signals(interruption):
            return collector.collect()
    except RunInterrupted as error:
        trusted = " --trust-source" if trust_source else ""
        raise RunInterrupted(str(error), hint=f"continue with: {again}{trusted}") from error


_SOURCES = click.argument(
    "sources", nargs=-1, required=True, metavar="SOURCE...", type=click.Path(path_type=Path)
)
_TO = click.option(
    "--to",
    "folder",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The data set; made where it is missing.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_FOLDER = click.argument("folder", type=click.Path(path_type=Path, file_okay=False))


@command.command("import")
@_SOURCES
@_TO
@_JSON
def import_(sources: tuple[Path, ...], folder: Path, as_json: bool) -> None:
    """Add what others have measured to a data set.

    A SOURCE is a run folder, a Kernel Tuner cache or T4 file, a folder with a MetaSchedule
    database, or a data set. What is in the data set already is left as it is.
    """
    _add(sources, folder, as_json=as_json)


@command.command("merge")
@_SOURCES
@_TO
@_JSON
def merge(sources: tuple[Path, ...], folder: Path, as_json: bool) -> None:
    """Add data sets to a data set; of two measurements of one candidate the first stands."""
    from chameleon_one_shot.dataset.format import read_manifest  # noqa: PLC0415

    for source in sources:
        read_manifest(source)
    _add(sources, folder, as_json=as_json)


def _add(sources: tuple[Path, ...], folder: Path, *, as_json: bool) -> None:
    from chameleon_one_shot.dataset.importing.sources import add  # noqa: PLC0415

    with results_alone():
        added = add(folder, sources, registry=default_registry())
    if as_json:
        told = {"dataset": str(folder), "sources": [attrs.asdict(one) for one in added]}
        click.echo(json.dumps(told))
        return
    for one in added:
        known = f", {one.known} known before or there twice" if one.known else ""
        click.echo(f"{one.source}: {one.candidates} candidates of {one.tasks} tasks added{known}")


@command.command("list")
@_FOLDER
@_JSON
def list_(folder: Path, as_json: bool) -> None:
    """Show what there is in the data set FOLDER."""
    from chameleon_one_shot.dataset.format import read_dataset  # noqa: PLC0415
    from chameleon_one_shot.dataset.summary import summary_of  # noqa: PLC0415

    found = summary_of(read_dataset(folder)).to_json()
    if as_json:
        click.echo(json.dumps({"dataset": str(folder), **found}))
        return
    click.echo(f"{folder}: {found.pop('tasks')} tasks, {found.pop('candidates')} candidates")
    for what, counts in found.items():
        told = ", ".join(f"{name} {count}" for name, count in counts.items())
        click.echo(f"{what}: {told or 'none'}")


@command.command("check")
@_FOLDER
@_JSON
def check(folder: Path, as_json: bool) -> None:
    """Read all of the data set FOLDER, and say what is wrong with it.

    Exits with 1 where a predictor cannot be trained with it.
    """
    from chameleon_one_shot.dataset import summary  # noqa: PLC0415

    found = summary.check(folder)
    if as_json:
        click.echo(json.dumps({"dataset": str(folder), **attrs.asdict(found)}))
    else:
        click.echo(
            f"{folder}: {found.parts} parts, {found.candidates} candidates, "
            f"{found.duplicates} there twice"
        )
        for sentence in (*found.errors, *found.warnings):
            click.echo(sentence)
    sys.exit(ExitCode.NO_VALID_RESULT if found.errors else ExitCode.OK)

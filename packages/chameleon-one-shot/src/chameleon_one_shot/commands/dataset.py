"""``chameleon dataset``: data sets of measured candidates."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from chameleon_cli.options import given_again, output_option, set_option
from chameleon_cli.streams import results_alone

if TYPE_CHECKING:
    from chameleon_one_shot.dataset.collecting import Collected
    from chameleon_one_shot.dataset.plan import Plan


@click.group("dataset")
def command() -> None:
    """Collect measurements of many tasks, or import, merge and check them."""


@command.command("collect")
@click.argument("plan", type=click.Path(path_type=Path))
@set_option("tasks=20")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@output_option("The data set's folder")
def collect(plan: Path, overrides: tuple[str, ...], as_json: bool, output: Path | None) -> None:
    """Measure tasks like those of the networks that PLAN names.

    The same command again continues an interrupted collection: nothing is measured twice. Ctrl-C
    stops in order, a second one at once.
    """
    from chameleon_core.errors import ExitCode  # noqa: PLC0415 - --help is quick

    from chameleon_one_shot.dataset.plan import read_plan  # noqa: PLC0415

    again, overrides = given_again("dataset collect", plan, overrides, output)
    with results_alone():
        found = _collect(read_plan(plan, overrides), again)
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


def _collect(plan: Plan, again: str) -> Collected:
    from chameleon_cli.progress import progress_for  # noqa: PLC0415
    from chameleon_core.loop import Interruption, RunInterrupted  # noqa: PLC0415
    from chameleon_core.plugins.registry import default_registry  # noqa: PLC0415

    from chameleon_one_shot.dataset.collecting import Collector  # noqa: PLC0415

    interruption = Interruption()
    collector = Collector(
        plan=plan,
        registry=default_registry(),
        interruption=interruption,
        say=lambda line: click.echo(line, err=True),
        display=lambda: contextlib.closing(progress_for(sys.stderr)),
    )
    try:
        with interruption.signals():
            return collector.collect()
    except RunInterrupted as error:
        raise RunInterrupted(str(error), hint=f"continue with: {again}") from error

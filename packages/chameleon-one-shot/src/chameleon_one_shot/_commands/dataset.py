"""The command group ``chameleon dataset``, for data sets of measured candidates."""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import click
import numpy as np
from chameleon_cli.api import (
    given_again,
    output_option,
    progress_for,
    results_alone,
    set_option,
    signals,
    trust_option,
)
from chameleon_core.api import Interruption, Registry
from chameleon_core.plugin_api import ExitCode

from chameleon_one_shot._dataset.collector import CollectionResult, Collector
from chameleon_one_shot._dataset.format import parts_of, read_dataset, read_manifest, read_part
from chameleon_one_shot._dataset.importing.sources import import_sources
from chameleon_one_shot._dataset.plan import Plan, read_plan
from chameleon_one_shot._dataset.tasks import Dataset, DatasetError, DatasetTask, merge_tasks

_LEAST_TASKS = 2
"""The fewest tasks for training, since a predictor is judged by tasks that it has not seen."""


def summarise(dataset: Dataset) -> dict[str, Any]:
    """Count a data set's tasks and candidates, for ``chameleon dataset list``."""

    def counted(of: Callable[[DatasetTask], str]) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for task in dataset.tasks:
            counts[of(task)] += len(task)
        return dict(counts.most_common())

    failures = Counter(kind for task in dataset.tasks for kind in task.failures if kind is not None)
    return {
        "tasks": len(dataset.tasks),
        "candidates": dataset.candidates,
        "failed": dict(failures.most_common()),
        "operators": dict(Counter(task.task.operator for task in dataset.tasks).most_common()),
        "devices": counted(_describe_device),
        "sources": counted(lambda task: task.source),
        "threads": counted(lambda task: str(task.threads)),
    }


def check_dataset(folder: Path) -> dict[str, Any]:
    """Read every file of a data set, and report all problems."""
    read_manifest(folder)
    errors: list[str] = []
    read: list[DatasetTask] = []
    files = parts_of(folder)
    for file in files:
        try:
            read += read_part(file)
        except DatasetError as error:
            errors.append(str(error))
    readable = len(files) - len(errors)
    tasks, duplicates = merge_tasks(read)
    useful = [task for task in tasks if np.isfinite(task.seconds).sum() > 1]
    if len({task.task.key for task in useful}) < _LEAST_TASKS:
        errors.append(
            f"{len(useful)} of {len(tasks)} tasks have two valid candidates or more, and training "
            f"needs {_LEAST_TASKS} such tasks"
        )
    warnings = []
    if len(useful) < len(tasks):
        warnings.append(f"{len(tasks) - len(useful)} tasks have less than two valid candidates")
    if any(not task.device for task in tasks):
        warnings.append("of some candidates the device is not known")
    return {
        "parts": readable,
        "candidates": sum(map(len, tasks)),
        "duplicates": duplicates,
        "errors": errors,
        "warnings": warnings,
    }


def _describe_device(task: DatasetTask) -> str:
    words = [task.device.get(name) for name in ("kind", "mcpu", "arch")]
    return " ".join(str(word) for word in words if word) or "unknown"


@click.group("dataset", epilog="Example: chameleon dataset list datasets/cpu")
def command() -> None:
    """Collect measurements of many tasks, or import, merge and check them."""


@command.command("collect", epilog="Example: chameleon dataset collect plan.yaml")
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
    """Measure tasks like those of the networks in PLAN.

    The same command continues an interrupted collection, and measures nothing twice. Ctrl-C stops
    after the running measurements, a second Ctrl-C at once. --trust-source is needed if a network
    of the plan has your own TensorIR functions.
    """
    again, overrides = given_again("dataset collect", plan, overrides, output)
    with results_alone():
        collected = _collect(read_plan(plan, overrides), again, trust_source=trust_source)
    folder = collected.folder
    if as_json:
        facts = attrs.asdict(collected)
        click.echo(json.dumps({"dataset": str(facts.pop("folder")), **facts}))
    else:
        click.echo(f"{folder}: {collected.tasks} tasks, {collected.candidates} candidates")
    for sentence in collected.failed_runs:
        click.echo(sentence, err=True)
    sys.exit(ExitCode.NO_VALID_RESULT if collected.failed_runs else ExitCode.OK)


def _collect(plan: Plan, again: str, *, trust_source: bool) -> CollectionResult:
    interruption = Interruption()
    collector = Collector(
        plan=plan,
        registry=Registry.default(),
        interruption=interruption,
        say=lambda line: click.echo(line, err=True),
        display=lambda: contextlib.closing(progress_for(sys.stderr)),
        trust_source=trust_source,
    )
    with signals(interruption, again + (" --trust-source" if trust_source else "")):
        return collector.collect()


_SOURCES = click.argument(
    "sources", nargs=-1, required=True, metavar="SOURCE...", type=click.Path(path_type=Path)
)
_TO = click.option(
    "--to",
    "folder",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The data set; it is created if it is missing.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_FOLDER = click.argument("folder", type=click.Path(path_type=Path, file_okay=False))


@command.command("import", epilog="Example: chameleon dataset import runs/net --to datasets/cpu")
@_SOURCES
@_TO
@_JSON
def import_(sources: tuple[Path, ...], folder: Path, as_json: bool) -> None:
    """Add measurements from other sources to a data set.

    A SOURCE is a run folder, a Kernel Tuner cache or T4 file, a folder with a MetaSchedule
    database, or a data set. Candidates that the data set already has do not change.
    """
    _add(sources, folder, as_json=as_json)


@command.command(
    "merge", epilog="Example: chameleon dataset merge datasets/a datasets/b --to datasets/cpu"
)
@_SOURCES
@_TO
@_JSON
def merge(sources: tuple[Path, ...], folder: Path, as_json: bool) -> None:
    """Add data sets to a data set. If a candidate was measured twice, the first one counts."""
    for source in sources:
        read_manifest(source)
    _add(sources, folder, as_json=as_json)


def _add(sources: tuple[Path, ...], folder: Path, *, as_json: bool) -> None:
    with results_alone():
        added = import_sources(folder, sources, registry=Registry.default())
    if as_json:
        line = {"dataset": str(folder), "sources": [attrs.asdict(row) for row in added]}
        click.echo(json.dumps(line))
        return
    for row in added:
        known = f", {row.known} known before or there twice" if row.known else ""
        click.echo(f"{row.source}: {row.candidates} candidates of {row.tasks} tasks added{known}")


@command.command("list", epilog="Example: chameleon dataset list datasets/cpu")
@_FOLDER
@_JSON
def list_(folder: Path, as_json: bool) -> None:
    """Show the numbers of tasks and candidates in the data set FOLDER."""
    facts = summarise(read_dataset(folder))
    if as_json:
        click.echo(json.dumps({"dataset": str(folder), **facts}))
        return
    click.echo(f"{folder}: {facts.pop('tasks')} tasks, {facts.pop('candidates')} candidates")
    for what, counts in facts.items():
        text = ", ".join(f"{name} {count}" for name, count in counts.items())
        click.echo(f"{what}: {text or 'none'}")


@command.command("check", epilog="Example: chameleon dataset check datasets/cpu")
@_FOLDER
@_JSON
def check(folder: Path, as_json: bool) -> None:
    """Read the whole data set FOLDER, and report its problems.

    Exits with 1 if no predictor can be trained with it.
    """
    problems = check_dataset(folder)
    if as_json:
        click.echo(json.dumps({"dataset": str(folder), **problems}))
    else:
        click.echo(
            f"{folder}: {problems['parts']} parts, {problems['candidates']} candidates, "
            f"{problems['duplicates']} there twice"
        )
        for sentence in (*problems["errors"], *problems["warnings"]):
            click.echo(sentence)
    sys.exit(ExitCode.NO_VALID_RESULT if problems["errors"] else ExitCode.OK)

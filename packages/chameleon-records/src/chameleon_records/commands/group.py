"""``chameleon records``: what is in a database, and what goes into it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
from chameleon_cli.result_rows import duration
from chameleon_cli.results_table import print_table
from chameleon_core.pipeline.durations import parse_duration
from chameleon_core.words import counted
from chameleon_system.files import write_whole

from chameleon_records.errors import RecordsError

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_PLACE = click.argument("place", required=False)


@click.group("records")
def command() -> None:
    """Add to record databases; merge, list, export and prune them.

    A PLACE is a SQLite file, a folder, an exported file, or an http(s) URL; the user's own database
    (or the one that CHAMELEON_RECORDS names) where it is left out.
    """


@command.command("add")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--to", "place", help="The database; the user's own by default.")
@_JSON
def add(runs: tuple[Path, ...], place: str | None, *, as_json: bool) -> None:
    """Add what run folders have measured."""
    from chameleon_records.merging import Table  # noqa: PLC0415 - --help is quick
    from chameleon_records.opening import opened_at  # noqa: PLC0415
    from chameleon_records.run_folders import records_of_run  # noqa: PLC0415

    found = Table(records_of_run(run) for run in runs)
    with opened_at(place) as database:
        changed = database.add(found.everything())
        _tell({"database": database.place, "changed": changed}, as_json=as_json)


@command.command("merge")
@click.argument("into")
@click.argument("sources", metavar="FROM...", nargs=-1, required=True)
@_JSON
def merge(into: str, sources: tuple[str, ...], *, as_json: bool) -> None:
    """Add to INTO what is in other places; again makes no difference, nor does the order."""
    from chameleon_records.merging import Table  # noqa: PLC0415
    from chameleon_records.opening import opened_at, required  # noqa: PLC0415

    found = Table()
    for source in sources:
        required(source)
        with opened_at(source) as database:
            found.merge(database.everything())
    with opened_at(into) as database:
        changed = database.add(found.everything())
        _tell({"database": database.place, "changed": changed}, as_json=as_json)


@command.command("list")
@_PLACE
@click.option("--operator", help="Tasks of this kind alone, such as conv2d.")
@_JSON
def listed(place: str | None, operator: str | None, *, as_json: bool) -> None:
    """Show the tasks in a database, with how many records they have and the best time."""
    from chameleon_records.opening import opened_at, required  # noqa: PLC0415

    required(place)
    with opened_at(place) as database:
        tasks = [
            _described(key, records)
            for key, records in database.everything().items()
            if operator is None or key.operator == operator
        ]
        found = {"database": database.place, "tasks": tasks}
    if as_json:
        click.echo(json.dumps(found))
        return
    tasks.sort(key=lambda one: (one["operator"], json.dumps(one["arguments"], sort_keys=True)))
    rows = [
        (
            one["key"][:12],
            one["operator"],
            _short(one["arguments"]),
            str(one["records"]),
            str(one["failed"]),
            duration(one["best_seconds"]),
        )
        for one in tasks
    ]
    click.echo(f"{found['database']}: {counted(len(rows), 'task')}")
    print_table(("key", "operator", "arguments", "records", "failed", "best"), rows)


@command.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--from", "place", help="A database or a run folder; the user's own by default.")
@click.option(
    "--to",
    "form",
    type=click.Choice(["jsonl", "csv", "parquet", "kernel-tuner", "t4"]),
    default="jsonl",
    show_default=True,
    help="What others read it with; of the last two FILE is a folder, with a file for each task.",
)
@_JSON
def export(file: Path, place: str | None, form: str, *, as_json: bool) -> None:
    """Write a database or a run into FILE, to be merged, hosted, or read by other tools."""
    from chameleon_records.tables.export import write_rows  # noqa: PLC0415
    from chameleon_records.tables.rows import rows_of  # noqa: PLC0415

    if form == "jsonl":
        _tell({"file": str(file.absolute()), "records": _dumped(file, place)}, as_json=as_json)
        return
    rows = rows_of(place)
    files = [str(one.absolute()) for one in write_rows(rows, form, file)]
    if as_json:
        click.echo(json.dumps({"files": files, "measurements": len(rows)}))
        return
    for one in files:
        click.echo(one)
    click.echo(f"measurements: {len(rows)}")


def _dumped(file: Path, place: str | None) -> int:
    """Write the records at a place in the format that databases read; how many there are."""
    from chameleon_records.databases.parts import SUFFIX  # noqa: PLC0415
    from chameleon_records.format import dump  # noqa: PLC0415
    from chameleon_records.opening import opened_at, required  # noqa: PLC0415
    from chameleon_records.run_folders import records_of_run  # noqa: PLC0415
    from chameleon_records.tables.rows import is_run  # noqa: PLC0415

    if file.suffix != SUFFIX:
        raise RecordsError(
            f"{file} does not end with {SUFFIX}",
            hint="Readers tell it by that; `--to csv` and others write for other tools.",
        )
    if is_run(place):
        found = records_of_run(Path(str(place)))
    else:
        required(place)
        with opened_at(place) as database:
            found = database.everything()
    try:
        write_whole(file, dump(found))
    except OSError as error:
        raise RecordsError(
            f"cannot write {file}: {error.strerror or error}", hint="Name a file elsewhere."
        ) from error
    return sum(map(len, found.values()))


@command.command("prune")
@_PLACE
@click.option("--older-than", metavar="DURATION", help="What was measured longer ago, as 2160h.")
@click.option(
    "--version", "versions", multiple=True, help="What depends on it, as apache-tvm=0.26.0."
)
@click.option("--target", "targets", multiple=True, help="Targets with this text, as znver2.")
@click.option("--best", type=click.IntRange(min=1), help="All but the fastest N of each task.")
@click.option("--dry-run", is_flag=True, help="Say how many would go, and change nothing.")
@_JSON
def prune(
    place: str | None,
    older_than: str | None,
    versions: tuple[str, ...],
    targets: tuple[str, ...],
    best: int | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove records: those that any of the options names."""
    from chameleon_records.opening import opened_at, required  # noqa: PLC0415
    from chameleon_records.pruning import Rules  # noqa: PLC0415

    if older_than is None and not versions and not targets and best is None:
        raise click.UsageError("name what is to go: --older-than, --version, --target or --best")
    required(place)
    before = None
    if older_than is not None:
        try:
            before = time.time() - parse_duration(older_than)
        except ValueError as error:
            raise click.UsageError(f"--older-than: {error}") from error
    rules = Rules(before=before, versions=versions, targets=targets, best=best)
    with opened_at(place) as database:
        if dry_run:
            found = database.everything()
            gone = sum(len(records) - len(rules.kept(k, records)) for k, records in found.items())
        else:
            gone = database.keep(rules.kept)
        _tell({"database": database.place, "removed": gone}, as_json=as_json)


def _tell(found: dict[str, Any], *, as_json: bool) -> None:
    click.echo(json.dumps(found) if as_json else ", ".join(f"{k}: {v}" for k, v in found.items()))


def _described(key: Any, records: Any) -> dict[str, Any]:
    valid = [one.measurement.cost for one in records if one.measurement.ok]
    return {
        "key": key.digest,
        **key.to_json(),
        "records": len(records),
        "failed": len(records) - len(valid),
        "best_seconds": min(valid, default=None),
        "measured_at": max((one.measured_at for one in records), default=None),
    }


def _short(arguments: Any) -> str:
    """Arguments as one line of a table: those with numbers in them, which tell tasks apart."""
    from chameleon_records.format import printable  # noqa: PLC0415

    shown = {k: v for k, v in arguments.items() if isinstance(v, int | list) and v is not False}
    text = " ".join(f"{name}={json.dumps(value)}" for name, value in shown.items())
    return printable(text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}...")


_WIDTH = 90
"""Characters of a task's arguments that are shown."""


__all__ = ["command"]

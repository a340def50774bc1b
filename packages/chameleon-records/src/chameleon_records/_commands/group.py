"""``chameleon records``: shows, fills, merges, exports and prunes record databases."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from chameleon_cli.api import duration, print_table, seconds
from chameleon_core.plugin_api import Record, RecordKey
from chameleon_system.api import counted, write_whole

from chameleon_records._databases.contract import Rules
from chameleon_records._databases.parts import SUFFIX
from chameleon_records._format import Records, RecordsError, Table, dump, printable
from chameleon_records._opening import opened_at
from chameleon_records._tables.export import write_rows
from chameleon_records._tables.rows import is_run, records_of_run, rows_of

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_PLACE = click.argument("place", required=False)


@click.group("records", epilog="Example: chameleon records list")
def command() -> None:
    """Add to record databases; merge, list, export and prune them.

    A PLACE is a SQLite file, a folder, an exported file, or an http(s) URL. By default, it is the
    place that CHAMELEON_RECORDS names, or else your own database.
    """


@command.command("add", epilog="Example: chameleon records add runs/net")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--to", "place", help="The database; the user's own by default.")
@_JSON
def add(runs: tuple[Path, ...], place: str | None, *, as_json: bool) -> None:
    """Add the measurements of run folders to a database."""
    _add(Table(map(records_of_run, runs)), place, as_json=as_json)


@command.command("merge", epilog="Example: chameleon records merge all.sqlite runs/a runs/b")
@click.argument("into")
@click.argument("sources", metavar="FROM...", nargs=-1, required=True)
@_JSON
def merge(into: str, sources: tuple[str, ...], *, as_json: bool) -> None:
    """Add the records of other places to INTO, in any order.

    Records that INTO already has are not added again.
    """
    _add(Table(map(_everything, sources)), into, as_json=as_json)


def _everything(place: str | None) -> Records:
    with opened_at(place, to_read=True) as database:
        return database.everything()


def _add(table: Table, place: str | None, *, as_json: bool) -> None:
    with opened_at(place) as database:
        changed = database.add(table.everything())
        _tell({"database": database.place, "changed": changed}, as_json=as_json)


@command.command("list", epilog="Example: chameleon records list --operator conv2d")
@_PLACE
@click.option("--operator", help="Only tasks of this kind of operator, such as conv2d.")
@_JSON
def listed(place: str | None, operator: str | None, *, as_json: bool) -> None:
    """Show the tasks in a database, with the number of their records and their best time."""
    with opened_at(place, to_read=True) as database:
        tasks = [
            _described(key, records)
            for key, records in database.everything().items()
            if operator is None or key.operator == operator
        ]
    if as_json:
        click.echo(json.dumps({"database": database.place, "tasks": tasks}))
        return
    tasks.sort(key=lambda task: (task["operator"], json.dumps(task["arguments"], sort_keys=True)))
    rows = [
        (
            task["key"][:12],
            task["operator"],
            _short(task["arguments"]),
            str(task["records"]),
            str(task["failed"]),
            duration(task["best_seconds"]),
        )
        for task in tasks
    ]
    click.echo(f"{database.place}: {counted(len(rows), 'task')}")
    print_table(("key", "operator", "arguments", "records", "failed", "best"), rows)


@command.command(
    "export", epilog="Example: chameleon records export records.csv --from runs/net --to csv"
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--from", "place", help="A database or a run folder; the user's own by default.")
@click.option(
    "--to",
    "form",
    type=click.Choice(["jsonl", "csv", "parquet", "kernel-tuner", "t4"]),
    default="jsonl",
    show_default=True,
    help="The format. For kernel-tuner and t4, FILE is a folder with a file for each task.",
)
@_JSON
def export(file: Path, place: str | None, form: str, *, as_json: bool) -> None:
    """Write a database or a run into FILE, to be merged, hosted, or read by other tools."""
    if form == "jsonl":
        _tell({"file": str(file.absolute()), "records": _dumped(file, place)}, as_json=as_json)
        return
    rows = rows_of(place)
    files = [str(written.absolute()) for written in write_rows(rows, form, file)]
    if as_json:
        click.echo(json.dumps({"files": files, "measurements": len(rows)}))
    else:
        click.echo("\n".join([*files, f"measurements: {len(rows)}"]))


def _dumped(file: Path, place: str | None) -> int:
    """Write the records of a place to a file that databases can read; return their number."""
    if file.suffix != SUFFIX:
        raise RecordsError(
            f"{file} does not end with {SUFFIX}",
            hint="Readers tell it by that; `--to csv` and others write for other tools.",
        )
    records = records_of_run(Path(str(place))) if is_run(place) else _everything(place)
    with RecordsError.on_os_error(f"cannot write {file}", hint="Name a file elsewhere."):
        write_whole(file, dump(records))
    return sum(map(len, records.values()))


@command.command("prune", epilog="Example: chameleon records prune --older-than 2160h --dry-run")
@_PLACE
@click.option(
    "--older-than", metavar="DURATION", callback=seconds, help="Records that are older, as 2160h."
)
@click.option(
    "--version", "versions", multiple=True, help="Records of this version, as apache-tvm=0.26.0."
)
@click.option("--target", "targets", multiple=True, help="Targets that contain this, as znver2.")
@click.option("--best", type=click.IntRange(min=1), help="All but the N fastest of each task.")
@click.option("--dry-run", is_flag=True, help="Count the records, and remove none.")
@_JSON
def prune(
    place: str | None,
    older_than: float | None,
    versions: tuple[str, ...],
    targets: tuple[str, ...],
    best: int | None,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove the records that any of the options names."""
    if older_than is None and not versions and not targets and best is None:
        raise click.UsageError("name what is to go: --older-than, --version, --target or --best")
    if not all(all(version.partition("=")) for version in versions):
        raise click.UsageError("--version: write NAME=VERSION, as in apache-tvm=0.26.0")
    before = None if older_than is None else time.time() - older_than
    rules = Rules(before=before, versions=versions, targets=targets, best=best)
    with opened_at(place, to_read=True) as database:
        if dry_run:
            everything = database.everything().items()
            gone = sum(len(records) - len(rules.kept(key, records)) for key, records in everything)
        else:
            gone = database.keep(rules.kept)
        if dry_run:
            click.echo("nothing was removed: --dry-run only counts", err=True)
        _tell({"database": database.place, "removed": gone}, as_json=as_json)


def _tell(facts: Mapping[str, object], *, as_json: bool) -> None:
    click.echo(json.dumps(facts) if as_json else ", ".join(f"{k}: {v}" for k, v in facts.items()))


def _described(key: RecordKey, records: Sequence[Record]) -> dict[str, Any]:
    valid = [record.measurement.cost for record in records if record.measurement.ok]
    return {
        "key": key.digest,
        **key.to_json(),
        "records": len(records),
        "failed": len(records) - len(valid),
        "best_seconds": min(valid, default=None),
        "measured_at": max((record.measured_at for record in records), default=None),
    }


def _short(arguments: Any) -> str:
    """The arguments of a task in one line: those with numbers, which distinguish tasks."""
    shown = {k: v for k, v in arguments.items() if isinstance(v, int | list) and v is not False}
    text = " ".join(f"{name}={json.dumps(value)}" for name, value in shown.items())
    return printable(text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}...")


_WIDTH = 90
"""Number of characters of a task's arguments that are shown."""

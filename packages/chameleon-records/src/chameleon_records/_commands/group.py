"""``chameleon records``: shows, fills, merges, exports and prunes record databases."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from chameleon_cli.api import duration, print_table, seconds
from chameleon_core.api import words
from chameleon_core.plugin_api import RecordDatabase
from chameleon_system.api import write_atomic

from chameleon_records._databases.contract import Rules
from chameleon_records._databases.parts import SUFFIX
from chameleon_records._format import Records, RecordsError, Table, dump, printable
from chameleon_records._locations import open_at
from chameleon_records._tables.export import write_rows
from chameleon_records._tables.rows import is_run, read_run_records, rows_of

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
    _add(Table(map(read_run_records, runs)), place, as_json=as_json)


@command.command("merge", epilog="Example: chameleon records merge all.sqlite runs/a runs/b")
@click.argument("into")
@click.argument("sources", metavar="FROM...", nargs=-1, required=True)
@_JSON
def merge(into: str, sources: tuple[str, ...], *, as_json: bool) -> None:
    """Add the records of other places to INTO, in any order.

    Records that INTO already has are not added again.
    """
    _add(Table(map(_all_records, sources)), into, as_json=as_json)


def _all_records(place: str | None) -> Records:
    with open_at(place, must_exist=True) as database:
        return database.all_records()


def _add(table: Table, place: str | None, *, as_json: bool) -> None:
    with open_at(place) as database:
        changed = database.add(table.all_records())
        _print_facts({"database": database.place, "changed": changed}, as_json=as_json)


@command.command("list", epilog="Example: chameleon records list --operator conv2d")
@_PLACE
@click.option("--operator", help="Only tasks of this kind of operator, such as conv2d.")
@_JSON
def list_tasks(place: str | None, operator: str | None, *, as_json: bool) -> None:
    """Show the tasks in a database, with the number of their records and their best time."""
    with open_at(place, must_exist=True) as database:
        tasks = [
            _summarise(key, records)
            for key, records in database.all_records().items()
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
    click.echo(f"{database.place}: {words.counted(len(rows), 'task')}")
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
        _print_facts(
            {"file": str(file.absolute()), "records": _write_jsonl(file, place)}, as_json=as_json
        )
        return
    rows = rows_of(place)
    files = [str(written.absolute()) for written in write_rows(rows, form, file)]
    if as_json:
        click.echo(json.dumps({"files": files, "measurements": len(rows)}))
    else:
        click.echo("\n".join([*files, f"measurements: {len(rows)}"]))


def _write_jsonl(file: Path, place: str | None) -> int:
    """Write the records of a place to a file that databases can read; return their number."""
    if file.suffix != SUFFIX:
        raise RecordsError(
            f"{file} does not end with {SUFFIX}",
            hint="Readers tell it by that; `--to csv` and others write for other tools.",
        )
    records = read_run_records(Path(str(place))) if is_run(place) else _all_records(place)
    with RecordsError.on_os_error(f"cannot write {file}", hint="Name a file elsewhere."):
        write_atomic(file, dump(records))
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
    with open_at(place, must_exist=True) as database:
        if dry_run:
            tables = database.all_records().items()
            removed = sum(len(records) - len(rules.select(key, records)) for key, records in tables)
        else:
            removed = database.prune(rules.select)
        if dry_run:
            click.echo("nothing was removed: --dry-run only counts", err=True)
        _print_facts({"database": database.place, "removed": removed}, as_json=as_json)


def _print_facts(facts: Mapping[str, object], *, as_json: bool) -> None:
    click.echo(json.dumps(facts) if as_json else ", ".join(f"{k}: {v}" for k, v in facts.items()))


def _summarise(key: RecordDatabase.Key, records: Sequence[RecordDatabase.Record]) -> dict[str, Any]:
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

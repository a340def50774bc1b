"""The measurements of a run folder or a record database, as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
from chameleon_core.api import RecordStore, RunFile, RunView
from chameleon_core.plugin_api import RecordDatabase

from chameleon_records._format import Records, RecordsError
from chameleon_records._locations import open_at


@attrs.frozen(kw_only=True)
class Row:
    """One measurement, with its operator.

    Attributes:
        task: the operator's name in its run; for a database, the digest of ``key``.
        key: the facts that the measurement depends on. ``key.conditions`` is empty if the
            conditions are unknown.
        record: the measurement, the knob values by name, and the time of the measurement.
        origin: the stage that proposed the configuration; None if unknown.
    """

    task: str
    key: RecordDatabase.Key
    record: RecordDatabase.Record
    origin: str | None = None


def rows_of(place: str | None) -> list[Row]:
    """All measurements at a place, in the order in which they were added."""
    if is_run(place):
        return list(_rows_of_run(Path(str(place))))
    with open_at(place, must_exist=True) as database:
        return [
            Row(task=key.digest, key=key, record=record)
            for key, records in database.all_records().items()
            for record in records
        ]


def is_run(place: str | None) -> bool:
    """Whether a place is a run folder."""
    return place is not None and "://" not in place and (Path(place) / RunFile.RECORDS).is_file()


def by_task(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """The rows of each task and design space, in their order."""
    tasks: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        tasks.setdefault((row.task, row.key.fingerprint), []).append(row)
    return tasks


def _rows_of_run(folder: Path) -> Iterator[Row]:
    with RecordStore.of_run(folder) as store:
        for stored in store.tasks():
            task, key = stored.task.name, store.key(stored)
            for record, origin in store.records(stored):
                yield Row(task=task, key=key, record=record, origin=origin)


def read_run_records(folder: Path) -> Records:
    """The measurements that a run has made itself, as records by key."""
    with RunView(folder) as run:
        records, measured = run.own_records(), run.store.measured
    if measured and not records:
        raise RecordsError(
            f"{folder} does not say under which conditions it was measured",
            hint="It was written by an earlier version, by a runner whose times are shared with "
            "nobody (a table's, a fleet's), or with several versions. Tune again to share it.",
        )
    return records

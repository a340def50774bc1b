"""Measurements of a run folder or a record database, one row each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
from chameleon_core.loop.start.shared_records import CONDITIONS, MIXED, kept_records
from chameleon_core.run_folder import RECORDS, read_store
from chameleon_core.stages import Record, RecordKey

from chameleon_records.errors import RecordsError
from chameleon_records.format import Records
from chameleon_records.opening import opened_at


@attrs.frozen(kw_only=True)
class Row:
    """One measurement, and its operator.

    Attributes:
        task: the operator's name in its run; of a database, which knows no names, a digest of
            what the measurement depends on.
        key: what the measurement depends on; its conditions are empty if nobody knows them.
        record: the outcome, the configuration by names, and the time.
        origin: what put it into its batch; None if that was not recorded, and of a database.
    """

    task: str
    key: RecordKey
    record: Record
    origin: str | None = None


def rows_of(place: str | None) -> list[Row]:
    """Every measurement at a place, in the order in which tasks and measurements were added.

    Args:
        place: a run folder, or the place of a record database; the user's own if None.

    Raises:
        RecordsError: there is nothing, or it cannot be read.
        RunFolderError: the run folder cannot be read.
    """
    if is_run(place):
        return list(_rows_of_run(Path(str(place))))
    with opened_at(place, to_read=True) as database:
        return [
            Row(task=key.digest, key=key, record=record)
            for key, records in database.everything().items()
            for record in records
        ]


def is_run(place: str | None) -> bool:
    """Whether a place is a run folder."""
    return place is not None and "://" not in place and (Path(place) / RECORDS).is_file()


def by_task(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """The rows of each task in each of its design spaces, in their order."""
    tasks: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        tasks.setdefault((row.task, row.key.fingerprint), []).append(row)
    return tasks


def _rows_of_run(folder: Path) -> Iterator[Row]:
    with read_store(folder) as store:
        conditions = store.fact(CONDITIONS)
        for stored in store.tasks():
            task = stored.task
            key = RecordKey(
                operator=task.operator,
                arguments=task.arguments,
                target=task.target,
                space=stored.space,
                fingerprint=stored.fingerprint,
                conditions={} if conditions == MIXED else conditions or {},
            )
            for measurement, knobs, origin, measured_at in zip(
                store.measurements(stored.id),
                store.decoded(stored.id),
                store.origins(stored.id),
                store.measured_at(stored.id),
                strict=True,
            ):
                record = Record(measurement=measurement, knobs=knobs, measured_at=measured_at)
                yield Row(task=task.name, key=key, record=record, origin=origin)


def records_of_run(folder: Path) -> Records:
    """The measurements that a run has made itself, by what they depend on.

    Raises:
        RunFolderError: it is no run folder, or cannot be read.
        RecordsError: nobody knows what its measurements depend on.
    """
    with read_store(folder) as store:
        records = kept_records(store)
        measured = store.measured
    if measured and not records:
        raise RecordsError(
            f"{folder} does not say under which conditions it was measured",
            hint="It was written by an earlier version, by a runner whose times are shared with "
            "nobody (a table's, a fleet's), or with several versions. Tune again to share it.",
        )
    return records

"""Measurements of a run folder or a record database, one row each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from chameleon_core.loop.end.kept_records import CONDITIONS, MIXED
from chameleon_core.measurement import Measurement
from chameleon_core.run_folder import RECORDS, read_store

from chameleon_records.opening import opened_at, required


@attrs.frozen(kw_only=True)
class Row:
    """One measurement, and what it is of.

    Attributes:
        task: the operator's name in its run; of a database, which knows no names, a digest of
            what the measurement depends on.
        operator: its kind.
        arguments: what defines it: shapes, layouts, types.
        target: canonical.
        space: name of the design space.
        fingerprint: the design space's.
        conditions: what else the time depends on; None where nobody knows.
        knobs: the configuration, by names.
        measurement: the outcome.
        origin: what put it into its batch; None where that was not recorded, and of a database.
        measured_at: seconds since 1970.
    """

    task: str
    operator: str
    arguments: Mapping[str, Any]
    target: str
    space: str
    fingerprint: str
    conditions: Mapping[str, Any] | None
    knobs: Mapping[str, Any]
    measurement: Measurement
    origin: str | None
    measured_at: float


def rows_of(place: str | None) -> list[Row]:
    """Every measurement at a place, in the order in which tasks and measurements were added.

    Args:
        place: a run folder, or the place of a record database; the user's own where None.

    Raises:
        RecordsError: there is nothing, or it cannot be read.
        RunFolderError: the run folder cannot be read.
    """
    return list(_rows_of_run(Path(str(place))) if is_run(place) else _rows_of_database(place))


def is_run(place: str | None) -> bool:
    """Whether a place is a run folder."""
    return place is not None and "://" not in place and (Path(place) / RECORDS).is_file()


def by_task(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """The rows of each task in each of its design spaces, in their order."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.task, row.fingerprint), []).append(row)
    return found


def _rows_of_run(folder: Path) -> Iterator[Row]:
    with read_store(folder) as store:
        conditions = store.fact(CONDITIONS)
        for stored in store.tasks():
            for measurement, knobs, origin, measured_at in zip(
                store.measurements(stored.id),
                store.decoded(stored.id),
                store.origins(stored.id),
                store.measured_at(stored.id),
                strict=True,
            ):
                yield Row(
                    task=stored.task.name,
                    operator=stored.task.operator,
                    arguments=stored.task.arguments,
                    target=stored.task.target,
                    space=stored.space,
                    fingerprint=stored.fingerprint,
                    conditions=None if conditions == MIXED else conditions,
                    knobs=knobs,
                    measurement=measurement,
                    origin=origin,
                    measured_at=measured_at,
                )


def _rows_of_database(place: str | None) -> Iterator[Row]:
    required(place)
    with opened_at(place) as database:
        for key, records in database.everything().items():
            for record in records:
                yield Row(
                    task=key.digest,
                    operator=key.operator,
                    arguments=key.arguments,
                    target=key.target,
                    space=key.space,
                    fingerprint=key.fingerprint,
                    conditions=key.conditions,
                    knobs=record.knobs,
                    measurement=record.measurement,
                    origin=None,
                    measured_at=record.measured_at,
                )


__all__ = ["Row", "by_task", "is_run", "rows_of"]

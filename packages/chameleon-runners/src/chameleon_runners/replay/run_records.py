"""Reads the store of a run folder as tables, one per task."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from chameleon_core.run_folder import read_store
from chameleon_core.store import RecordStore, StoredTask

from chameleon_runners.replay.table import Outcome, Table, table_of


def tables_of_run(folder: Path) -> list[Table]:
    """The tables of a run folder, in the order of its tasks; tasks never measured have none.

    The space of a table has the recorded space's knobs, as far as their values occur in the
    records, with the recorded configurations as the legal ones: what was never measured cannot
    be replayed.

    Raises:
        RunFolderError: there is no run in this folder, or it cannot be read.
    """
    with read_store(folder) as store:
        tables = [_table(store, stored) for stored in store.tasks()]
    return [table for table in tables if table is not None]


def _table(store: RecordStore, stored: StoredTask) -> Table | None:
    measurements = store.measurements(stored.id)
    if not measurements:
        return None
    decoded = store.decoded(stored.id)
    names = list(decoded[0])
    columns = {name: [_value(knobs[name]) for knobs in decoded] for name in names}
    ranks = {
        name: [measurement.config[column] for measurement in measurements]
        for column, name in enumerate(names)
    }
    outcomes = [
        Outcome(
            seconds=m.seconds,
            failure=m.failure,
            message=m.message,
            build_seconds=m.build_seconds,
            run_seconds=m.run_seconds,
        )
        for m in measurements
    ]
    described = [stored.task.key, stored.fingerprint, [(m.config, m.seconds) for m in measurements]]
    digest = hashlib.sha256(json.dumps(described).encode()).hexdigest()[:24]
    return table_of(stored.task.name, digest, columns, outcomes, ranks=ranks, flop=stored.task.flop)


def _value(value: Any) -> Any:
    """A knob's value, as JSON has kept it, as something that can be compared and hashed."""
    if isinstance(value, list) and all(isinstance(part, int) for part in value):
        return tuple(value)
    return value if isinstance(value, bool | int | float | str) else json.dumps(value)

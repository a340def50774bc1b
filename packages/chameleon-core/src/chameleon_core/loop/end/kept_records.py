"""What a run folder has measured itself, as records with what they depend on."""

from __future__ import annotations

from chameleon_core.loop.round.batch import Origin
from chameleon_core.measurement import FailureKind
from chameleon_core.stages import Record, RecordKey
from chameleon_core.store import RecordStore

CONDITIONS = "conditions"
"""Name of the fact in a run's store that says under which conditions it measures."""

TAKEN = "records"
"""Name of the fact that says what a run took from record databases as it began."""

MIXED = "mixed"
"""That fact of a folder that was continued under other conditions than it was begun with."""


def shares_records(store: RecordStore) -> bool:
    """Whether a run has record databases, so that others may have to choose what it chooses."""
    return store.fact(TAKEN) is not None


def kept_records(store: RecordStore) -> dict[RecordKey, list[Record]]:
    """What a run has measured itself; empty where nobody knows under which conditions.

    Records that it took over are left to whom they came from. A lost device says nothing of the
    configuration.

    Args:
        store: the run's.
    """
    conditions = store.fact(CONDITIONS)
    if conditions is None or conditions == MIXED:
        return {}
    found = {}
    for stored in store.tasks():
        rows = list(
            zip(
                store.measurements(stored.id),
                store.decoded(stored.id),
                store.origins(stored.id),
                store.measured_at(stored.id),
                strict=True,
            )
        )
        own = [row for row in rows if row[2] != Origin.RECORD]
        key = RecordKey(
            operator=stored.task.operator,
            arguments=stored.task.arguments,
            target=stored.task.target,
            space=stored.space,
            fingerprint=stored.fingerprint,
            conditions=conditions,
        )
        found[key] = [
            Record(
                measurement=measurement,
                knobs=knobs,
                measured_at=measured_at,
                spent_seconds=stored.spending.total / len(own),
            )
            for measurement, knobs, _, measured_at in own
            if measurement.failure is not FailureKind.DEVICE_LOST
        ]
    return found

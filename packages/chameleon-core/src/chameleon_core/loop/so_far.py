"""What a store knows of an operator, whether its run has ended or not."""

from __future__ import annotations

from collections import Counter

from chameleon_core.loop.result import OperatorResult
from chameleon_core.measurement import failures_by_kind, most_frequent_failure
from chameleon_core.store import RecordStore, StoredTask


def operator_so_far(store: RecordStore, stored: StoredTask) -> OperatorResult:
    """The result of a task as its measurements are now; nothing is compared.

    Args:
        store: the run's.
        stored: one of its tasks.
    """
    measurements = store.measurements(stored.id)
    fastest = min((m for m in measurements if m.ok), key=lambda m: m.cost, default=None)
    return OperatorResult(
        name=stored.task.name,
        task=stored.task.to_json(),
        space=stored.space,
        fingerprint=stored.fingerprint,
        config=None if fastest is None else fastest.config,
        best=None if fastest is None else store.knobs(stored.id, fastest.config),
        search_seconds=None if fastest is None else fastest.cost,
        max_relative_error=None if fastest is None else fastest.max_relative_error,
        measurements=len(measurements),
        origins=dict(Counter(origin for origin in store.origins(stored.id) if origin)),
        failed=failures_by_kind(measurements),
        failure=most_frequent_failure(measurements),
        spending=stored.spending,
    )

"""The result of one operator, at the end of its run and while it goes on."""

from __future__ import annotations

import attrs

from chameleon_core.loop.end.comparison import Baselines, alternatives, variants, winner
from chameleon_core.loop.end.result import OperatorResult
from chameleon_core.loop.round.batch import tuples
from chameleon_core.loop.round.records import TaskRecords
from chameleon_core.loop.round.task_run import TaskRun
from chameleon_core.store import RecordStore, StoredComparison, StoredTask


def interim_result(store: RecordStore, stored: StoredTask) -> OperatorResult:
    """The result of a task as its measurements are now; nothing is compared.

    Args:
        store: the run's.
        stored: one of its tasks.
    """
    records = TaskRecords(store, stored)
    valid = (m for m in records.measured.values() if m.ok)
    fastest = min(valid, key=lambda m: m.cost, default=None)
    result = _counted(records)
    if fastest is None:
        return result
    return attrs.evolve(
        result,
        config=fastest.config,
        best=store.knobs(stored.id, fastest.config),
        search_seconds=fastest.cost,
        max_relative_error=fastest.max_relative_error,
    )


def final_result(
    run: TaskRun, comparison: StoredComparison, baselines: Baselines
) -> OperatorResult:
    """The result of a task that has ended.

    Args:
        run: the task.
        comparison: of its winners with the baselines.
        baselines: the task's.
    """
    config = winner(comparison)
    found = None if config is None else run.records.measured.get(config)
    return attrs.evolve(
        _counted(run.records),
        config=config,
        alternatives=alternatives(run.tuner.measurements, config),
        best=None if config is None else run.space.decode(config),
        search_seconds=None if found is None else found.cost,
        max_relative_error=None if found is None else found.max_relative_error,
        guesses=() if run.records.measured else tuple(tuples(run.tuner.recommended())),
        ended=run.ended,
        spending=run.spending,
        variants=variants(comparison, baselines.vendors),
    )


def _counted(records: TaskRecords) -> OperatorResult:
    """What can be said without a winner."""
    stored = records.stored
    return OperatorResult(
        name=stored.task.name,
        task=stored.task.to_json(),
        space=stored.space,
        fingerprint=stored.fingerprint,
        measurements=len(records.measured),
        origins=records.origins,
        failed=records.failed,
        failure=records.failure,
        spending=stored.spending,
    )


__all__ = ["final_result", "interim_result"]

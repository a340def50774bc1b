"""The result of one operator, at the end of its run and while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from chameleon_core.events.records import Event
from chameleon_core.loop.end.choice import best_of
from chameleon_core.loop.end.comparison import (
    Baselines,
    TimeSlot,
    alternatives,
    compared,
    variants,
    winner,
)
from chameleon_core.loop.end.kept_records import shares_records
from chameleon_core.loop.end.result import OperatorResult
from chameleon_core.loop.interruption import Interruption
from chameleon_core.loop.round.batch import Config, tuples
from chameleon_core.loop.round.measure import CheckedRunner
from chameleon_core.loop.round.records import TaskRecords
from chameleon_core.loop.round.task_run import TaskRun
from chameleon_core.store import RecordStore, StoredComparison, StoredTask

FURTHER = 3
"""Records that may take the place of one that turns out wrong; after them what is recommended where
nothing is measured."""


def interim_result(store: RecordStore, stored: StoredTask) -> OperatorResult:
    """The result of a task as its measurements are now; nothing is compared.

    Args:
        store: the run's.
        stored: one of its tasks.
    """
    records = TaskRecords(store, stored)
    fastest = best_of(records.measured.values(), shared=shares_records(store))
    result = _counted(records)
    if fastest is None:
        return result
    return attrs.evolve(
        result,
        config=fastest.config,
        best=store.knobs(stored.id, fastest.config),
        search_seconds=fastest.cost,
        max_relative_error=fastest.max_relative_error,
        recorded=records.is_recorded(fastest.config),
    )


def compared_results(
    runs: Sequence[TaskRun],
    baselines: Sequence[Baselines],
    *,
    runner: CheckedRunner,
    store: RecordStore,
    interruption: Interruption,
    publish: Callable[[Event], None],
    delivers: bool,
    seconds: Callable[[], float],
) -> list[OperatorResult]:
    """The results of all tasks, their winners compared one task after the other.

    Args:
        runs: the tasks, which have ended.
        baselines: of each.
        runner: as for ``compared``.
        store: as for ``compared``.
        interruption: as for ``compared``.
        publish: as for ``compared``.
        delivers: as for ``compared``.
        seconds: wall-clock of the run until now.
    """
    shared, before, found = shares_records(store), seconds(), []
    for number, (run, others) in enumerate(zip(runs, baselines, strict=True), 1):
        comparison = compared(
            run,
            others,
            runner=runner,
            store=store,
            interruption=interruption,
            publish=publish,
            delivers=delivers,
            place=TimeSlot.among(number, len(runs), before=before, now=seconds()),
        )
        found.append(final_result(run, comparison, others, shared=shared))
    return found


def final_result(
    run: TaskRun, comparison: StoredComparison, baselines: Baselines, *, shared: bool = False
) -> OperatorResult:
    """The result of a task that has ended.

    Args:
        run: the task.
        comparison: of its winners with the baselines.
        baselines: the task's.
        shared: as for ``best_of``.
    """
    config = winner(comparison, shared=shared)
    found = None if config is None else run.records.measured.get(config)
    # A comparison builds and checks again; the measurement itself takes its place without one.
    recorded = run.records.is_recorded(config) and any(
        one is found for one in comparison.measurements
    )
    return attrs.evolve(
        _counted(run.records),
        config=config,
        alternatives=alternatives(run.tuner.measurements, config),
        best=None if config is None else run.space.decode(config),
        search_seconds=None if found is None else found.cost,
        max_relative_error=None if found is None else found.max_relative_error,
        guesses=_instead(run, config) if recorded or not run.records.measured else (),
        recorded=recorded,
        predicted=run.tuner.predicted and not run.records.measured,
        ended=run.ended,
        spending=run.spending,
        variants=variants(comparison, baselines.vendors, config),
    )


def _instead(run: TaskRun, chosen: Config | None) -> tuple[Config, ...]:
    """What may take the place of a winner that nobody has checked here, or of none."""
    valid = sorted((m for m in run.records.measured.values() if m.ok), key=lambda m: m.cost)
    further = (*(m.config for m in valid[: 1 + FURTHER]), *tuples(run.tuner.recommended()))
    return tuple(dict.fromkeys(config for config in further if config != chosen))


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


__all__ = ["compared_results", "final_result", "interim_result"]

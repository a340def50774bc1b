"""Takes records from databases when a run begins, and adds the run's records when it ends.

A record is a measurement in a database. Records with exactly the same key (``RecordDatabase.Key``)
as a task of the run count as measured. They are copied into the run's own store, so that a resumed
run depends on no database. For a task without such records, the best configurations of the nearest
tasks are measured first.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

import attrs
import numpy as np
import structlog

from chameleon_core._errors import ChameleonError
from chameleon_core._fallbacks import fall_back
from chameleon_core._loop.round.batch import Config
from chameleon_core._loop.round.in_flight import CheckedRunner
from chameleon_core._loop.start.earlier_runs import encoded, nearest, same_types
from chameleon_core._measurement import FailureKind, Measurement, Spending
from chameleon_core._pipeline.schema import ResolvedPipeline
from chameleon_core._space.design import DesignSpace
from chameleon_core._stages.record_database import RecordDatabase
from chameleon_core._store.records import CONDITIONS, MIXED, RecordStore
from chameleon_core._task import Task
from chameleon_core._versions import versions

log = structlog.get_logger()

T = TypeVar("T")

TAKEN = "records"
"""Key under which a run's store keeps a summary of the records taken from databases."""


ELSEWHERE = "records_of_other_targets"
"""Key under which a run's store keeps the configurations of ``SharedRecords.fastest``."""

FASTEST = 8
"""Number of configurations of a task of another target."""


def fastest_elsewhere(store: RecordStore, task: Task) -> list[Config]:
    """The configurations that a delivery of the run has found for a task of another target."""
    return [tuple(config) for config in (store.fact(ELSEWHERE) or {}).get(task.key, ())]


def shares_records(store: RecordStore) -> bool:
    """Whether a run has record databases.

    If so, other runs with the same databases should choose the same winners.
    """
    return store.fact(TAKEN) is not None


@attrs.frozen(kw_only=True)
class SharedRecords:
    """The records that a run takes from record databases, and those that it adds to them.

    If a database cannot be opened, read or written, a warning names it, and the run goes on.

    Args:
        store: the run's record store.
        databases: open databases. The run's measurements are added to the first writable one.
        conditions: the conditions that the run's times depend on
            (``RecordDatabase.Key.conditions``). None for a run without databases, which takes and
            adds nothing.
        space: the name of the plugin that makes the design spaces.
        fresh: whether to take no records from databases, because everything is to be measured
            again.
    """

    _store: RecordStore
    _databases: list[RecordDatabase]
    _conditions: Mapping[str, Any] | None
    _space: str
    _fresh: bool
    _trials: dict[RecordDatabase.Key, list[RecordDatabase.Record]] = attrs.field(
        factory=dict, init=False
    )

    # -- as the run begins ----------------------------------------------------------------------

    def take(self, tasks: Sequence[Task], spaces: Sequence[DesignSpace]) -> None:
        """Copy the records of a run's tasks from databases to the run's store.

        The run calls it before its first measurement, and does not measure these configurations
        again.

        Args:
            tasks: the tasks of the run.
            spaces: the design space of each task.
        """
        store = self._store
        if self._conditions is None or store.fact(TAKEN) is not None:
            return
        if store.measured:
            log.info("no_records_taken", reason="the run was begun without record databases")
            return
        started, counts = time.perf_counter(), []
        seconds: dict[str, float] = {}
        suggested: dict[str, list[Config]] = {}
        # Either all records are copied or none, because a run with measurements takes no more
        # records.
        with store.statements():
            for task, space in zip(tasks, spaces, strict=True):
                records = [] if self._fresh else self.known(task, space)
                row = store.add_task(task, self._space, space.fingerprint).id
                for record in records:
                    config = record.measurement.config
                    store.add(
                        row,
                        int(space.keys(np.array([config], np.int32))[0]),
                        record.measurement,
                        knobs=record.knobs,
                        spending=Spending(),
                        origin=Measurement.Origin.RECORD,
                        measured_at=record.measured_at,
                    )
                counts.append(len(records))
                seconds[task.key] = math.fsum(record.spent_seconds for record in records)
                if not records and not self._fresh:
                    nearest_ones = partial(self._nearest, task, space)
                    suggested[task.key] = (
                        _call_or_warn(f"records like {task.name}", nearest_ones) or []
                    )
            store.set_fact(TAKEN, {"seconds": seconds, "suggested": suggested})
        if any(counts):
            log.info(
                "records_taken",
                measurements=sum(counts),
                tasks=sum(count > 0 for count in counts),
                of=len(tasks),
                databases=[database.place for database in self._databases],
                seconds=round(time.perf_counter() - started, 3),
            )

    def seconds_of(self, task: Task) -> float:
        """Wall-clock time in seconds that other runs took to measure a task's copied records."""
        return float(self._taken("seconds").get(task.key, 0.0))

    def suggestions(self, task: Task) -> list[Config]:
        """Configurations that were fast for similar tasks, to measure first for a task.

        They come from databases. The most promising one is last. The list is empty if the task has
        records of its own.
        """
        return [tuple(config) for config in self._taken("suggested").get(task.key, ())]

    def _taken(self, what: str) -> Mapping[str, Any]:
        part: Mapping[str, Any] = (self._store.fact(TAKEN) or {}).get(what, {})
        return part

    def known(self, task: Task, space: DesignSpace) -> list[RecordDatabase.Record]:
        """The records that databases have for exactly this task, in the order of their measurement.

        The list is empty if no record succeeded, so that the run tries configurations that failed
        in other runs.

        Args:
            task: the task.
            space: the task's design space.
        """
        if self._fresh:
            return []
        return _call_or_warn(f"records of {task.name}", partial(self._known, task, space)) or []

    def fastest(self, task: Task, space: DesignSpace) -> list[Config]:
        """The configurations that were fastest for a task of another target, fastest first.

        They come from databases. The store keeps them for ``fastest_elsewhere``.

        Args:
            task: the task, which the run does not measure.
            space: the task's design space.
        """
        valid = [record for record in self.known(task, space) if record.measurement.ok]
        fastest = sorted(valid, key=attrgetter("rank"))[:FASTEST]
        if fastest:
            kept = self._store.fact(ELSEWHERE) or {}
            configs = [record.measurement.config for record in fastest]
            self._store.set_fact(ELSEWHERE, {**kept, task.key: configs})
        return fastest_elsewhere(self._store, task)

    def _known(self, task: Task, space: DesignSpace) -> list[RecordDatabase.Record]:
        key = self._key(task, space)
        best: dict[Config, RecordDatabase.Record] = {}
        for record in self._usable(self._records(key), task, space):
            best_so_far = best.setdefault(record.measurement.config, record)
            if record.rank < best_so_far.rank:
                best[record.measurement.config] = record
        if not any(record.measurement.ok for record in best.values()):
            return []
        return sorted(best.values(), key=lambda row: (row.measured_at, row.measurement.config))

    def _nearest(self, task: Task, space: DesignSpace) -> list[Config]:
        own = self._key(task, space)
        alike = {key.digest: key for key in self._from_all(lambda source: list(source.keys(own)))}
        others = [
            key
            for _, key in sorted(alike.items())
            if key != own and same_types(task.arguments, key.arguments)
        ]
        configs = []
        for key in nearest(task.arguments, others, lambda source: source.arguments):
            valid = [record for record in self._records(key) if record.measurement.ok]
            if valid:
                config = encoded(space, min(valid, key=attrgetter("rank")).knobs)
                configs += [] if config is None else [config]
        return list(reversed(configs))

    def _usable(
        self, records: Iterable[RecordDatabase.Record], task: Task, space: DesignSpace
    ) -> Iterator[RecordDatabase.Record]:
        """Records with valid values, whose configurations are legal in the space."""
        rows = list(records)
        good = [record for record in rows if _sound(record, space)]
        configs = np.array([row.measurement.config for row in good], np.int32)
        legal = space.legal(configs.reshape(-1, len(space.knobs)))
        good = [record for record, ok in zip(good, legal, strict=True) if ok]
        if len(good) < len(rows):
            log.warning(
                "records_do_not_fit_design_space",
                task=task.name,
                records=len(rows) - len(good),
            )
        yield from good

    # -- as it ends -----------------------------------------------------------------------------

    def note(self, task: Task, space: DesignSpace, measurements: Iterable[Measurement]) -> None:
        """Keep measurements of a task that is not in the run, to add them to a database at the end.

        An example is a measurement with which a frontend chose the layout of a network.

        Args:
            task: the task that was measured.
            space: the design space of the task.
            measurements: the measurements of the task.
        """
        trials = self._trials.setdefault(self._key(task, space), [])
        trials += [
            RecordDatabase.Record(
                measurement=measurement,
                knobs=space.decode(measurement.config),
                measured_at=time.time(),
            )
            for measurement in measurements
            if measurement.failure is not FailureKind.DEVICE_LOST
        ]

    def add(self) -> None:
        """Add the run's own measurements to the first writable database."""
        if not self._databases:
            return
        fresh = {key: list(records) for key, records in self._trials.items()}
        for key, records in kept_records(self._store).items():
            fresh.setdefault(key, []).extend(records)
        fresh = {key: records for key, records in fresh.items() if records}
        if not fresh:
            return
        database = next((store for store in self._databases if store.writable), None)
        if database is None:
            places = [store.place for store in self._databases]
            log.warning("no_writable_record_database", databases=places)
            return
        added = _call_or_warn(database.place, partial(database.add, fresh))
        if added is not None:
            log.info("records_added", database=database.place, records=added)

    # -- asking databases -----------------------------------------------------------------------

    def _records(self, key: RecordDatabase.Key) -> Iterator[RecordDatabase.Record]:
        return self._from_all(lambda database: list(database.records(key)))

    def _key(self, task: Task, space: DesignSpace) -> RecordDatabase.Key:
        return RecordDatabase.Key.of(task, self._space, space.fingerprint, self._conditions or {})

    def _from_all(self, asked: Callable[[RecordDatabase], list[T]]) -> Iterator[T]:
        """The answers of all databases; a database that fails is not asked again."""
        for database in tuple(self._databases):
            answered = _call_or_warn(database.place, partial(asked, database))
            if answered is None:
                self._databases.remove(database)
            else:
                yield from answered


def noted_conditions(
    pipeline: ResolvedPipeline, store: RecordStore, runner: CheckedRunner
) -> Mapping[str, Any] | None:
    """Store the conditions that the run's times depend on, and return them.

    A record database offers the run's measurements only to runs under equal conditions.

    Args:
        pipeline: the run's pipeline.
        store: the run's record store.
        runner: the run's runner, which has started.

    Returns:
        The conditions (``RecordDatabase.Key.conditions``). None if the runner's measurements must
        not be shared, or if the folder has measurements under other conditions.
    """
    own = runner.conditions()
    if own is None:
        if pipeline.records:
            log.info("sharing_switched_off", reason="measurements of this runner are not shared")
        return None
    # Another version of the space's distribution may make other kernels from the same
    # configuration.
    brought = versions({pipeline.space.distribution} - {""})
    conditions = {**own, "versions": {**own.get("versions", {}), **brought}}
    before = store.fact(CONDITIONS)
    same = json.loads(json.dumps(conditions)) == before
    if before is None and not store.measured:
        store.set_fact(CONDITIONS, conditions)
    elif not same:
        store.set_fact(CONDITIONS, MIXED)
        if pipeline.records:
            log.warning(
                "sharing_switched_off",
                reason="the folder has measurements of other or unknown versions or conditions",
            )
        return None
    return conditions


@contextlib.contextmanager
def shared_records(
    pipeline: ResolvedPipeline, store: RecordStore, runner: CheckedRunner, *, fresh: bool
) -> Iterator[SharedRecords]:
    """Open the record databases of a pipeline, and add the run's records at the end of the context.

    Args:
        pipeline: the pipeline of the run.
        store: the run's record store.
        runner: the run's runner, which has started.
        fresh: whether to take no records from databases, because everything is to be measured
            again.
    """
    conditions = noted_conditions(pipeline, store, runner)
    specs = () if conditions is None else pipeline.records or ()
    opened = [_call_or_warn(f"record database '{spec.name}'", spec.create) for spec in specs]
    databases: list[RecordDatabase] = [database for database in opened if database is not None]
    records = SharedRecords(
        store=store,
        databases=[*databases],
        conditions=conditions if specs else None,
        space=pipeline.space.name,
        fresh=fresh,
    )
    try:
        yield records
    finally:
        _call_or_warn("the run's own records", records.add)
        for database in databases:
            _call_or_warn(database.place, database.close)


def kept_records(store: RecordStore) -> dict[RecordDatabase.Key, list[RecordDatabase.Record]]:
    """The run's own measurements in the form of database records.

    The result is empty if the conditions of the measurements are unknown.

    Records that the run took from databases are left out. Measurements that failed because a device
    was lost are left out too: the configuration did not cause the failure.

    Args:
        store: the run's record store.
    """
    if store.conditions is None:
        return {}
    records = {}
    for stored in store.tasks():
        own = [row for row, origin in store.records(stored) if origin != Measurement.Origin.RECORD]
        records[store.key(stored)] = [
            attrs.evolve(record, spent_seconds=stored.spending.total / len(own))
            for record in own
            if record.measurement.failure is not FailureKind.DEVICE_LOST
        ]
    return records


def _sound(record: RecordDatabase.Record, space: DesignSpace) -> bool:
    """Whether a record, which anybody may have written, is valid and in range for the space."""
    trial = record.measurement
    config = trial.config
    return (
        len(config) == len(space.knobs)
        and all(
            0 <= index < knob.cardinality for index, knob in zip(config, space.knobs, strict=True)
        )
        and all(0.0 < seconds < math.inf for seconds in trial.seconds)
        and math.isfinite(record.measured_at)
        and 0.0 <= record.spent_seconds < math.inf
        and json.loads(json.dumps(space.decode(config))) == json.loads(json.dumps(record.knobs))
    )


def _call_or_warn(place: str, ask: Callable[[], T]) -> T | None:
    """The answer of a database, or None after an error, which is logged (``fall_back``)."""
    try:
        return ask()
    except ChameleonError as error:
        log.warning("records_not_shared", database=place, problem=str(error), hint=error.hint)
    except Exception as error:  # noqa: BLE001 - anyone's code and anyone's data
        fall_back("records_not_shared", error, database=place)
    return None

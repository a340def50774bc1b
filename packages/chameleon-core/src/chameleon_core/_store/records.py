"""The records of a run: each measurement is committed when it arrives, and is read back exactly."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import attrs
import cattrs

from chameleon_core._errors import ChameleonError, RunFolderError
from chameleon_core._measurement import FailureKind, Measurement, Spending
from chameleon_core._run_files import RunFile
from chameleon_core._stages.jobs import TUNED, Contender
from chameleon_core._stages.record_database import RecordDatabase
from chameleon_core._store.sqlite_file import SQLiteFile
from chameleon_core._task import Task

SCHEMA_VERSION = 1

T = TypeVar("T")

_UNREADABLE = (
    *(ValueError, TypeError, KeyError, AttributeError, RecursionError),
    cattrs.BaseValidationError,
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tasks (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    space TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    name TEXT NOT NULL,
    task TEXT NOT NULL,
    spending TEXT NOT NULL DEFAULT '{}',
    UNIQUE (key, space, fingerprint)
);
CREATE TABLE IF NOT EXISTS measurements (
    id INTEGER PRIMARY KEY,
    task_id INTEGER NOT NULL REFERENCES tasks (id),
    identity TEXT NOT NULL,
    config TEXT NOT NULL,
    knobs TEXT NOT NULL,
    seconds TEXT NOT NULL,
    failure TEXT,
    message TEXT NOT NULL,
    max_relative_error REAL,
    build_seconds REAL NOT NULL,
    run_seconds REAL NOT NULL,
    measured_at REAL NOT NULL,
    origin TEXT,
    score REAL,
    UNIQUE (task_id, identity)
);
CREATE TABLE IF NOT EXISTS comparisons (
    task_id INTEGER PRIMARY KEY REFERENCES tasks (id),
    contenders TEXT NOT NULL,
    measurements TEXT NOT NULL
);
"""

_CONTINUE = (
    "what was committed before is safe; free space or restore access and give the same command "
    "again: it continues where this run stopped"
)
_DAMAGED = (
    "restore the file from a copy, save what can be read of it with `sqlite3 FILE .recover`, or "
    "move the run folder aside and start anew"
)


def dumped(value: Any) -> str:
    """A value as JSON text, in the form that rows hold."""
    return json.dumps(value, separators=(",", ":"))


def json_of(row: tuple[Any, ...]) -> Any:
    """Read the JSON value in a row's only column."""
    return json.loads(row[0])


def measurement_of(row: tuple[Any, ...]) -> Measurement:
    """Make a measurement from a row of the table ``measurements``.

    Args:
        row: the values of the columns ``_COLUMNS``, in their order.
    """
    # Without cattrs, for speed: a folder may have very many measurements.
    config, seconds, failure, message, *numbers = row
    return Measurement(
        config=tuple(json.loads(config)),
        seconds=tuple(json.loads(seconds)),
        failure=None if failure is None else FailureKind(failure),
        message=message,
        **dict(zip(Measurement.NUMBERS, numbers, strict=True)),
    )


_COLUMNS = ("config", "seconds", "failure", "message", *Measurement.NUMBERS)

_ADDED = (*("task_id", "identity", "knobs", "measured_at", "origin", "score"), *_COLUMNS)
_ADD = (
    f"INSERT OR IGNORE INTO measurements ({', '.join(_ADDED)}) "  # noqa: S608 - the names are constants
    f"VALUES ({', '.join('?' for _ in _ADDED)})"
)


CONDITIONS = "conditions"
"""Key under which a run's store keeps the conditions of its measurements."""

MIXED = "mixed"
"""Value of ``CONDITIONS`` if a run was continued under other conditions than before."""

_PRESENT = "present/{key}"
"""Key under which the store keeps the id of the task's row with its present design space."""


@attrs.frozen(kw_only=True)
class StoredComparison:
    """The final comparison of a task with its baselines, as the store keeps it.

    Attributes:
        contenders: the contenders that took part.
        measurements: the measurement of each contender, in the order of ``contenders``.
    """

    contenders: tuple[Contender, ...]
    measurements: tuple[Measurement, ...]

    @property
    def rows(self) -> Iterator[tuple[Contender, Measurement]]:
        """Each contender with its measurement."""
        return zip(self.contenders, self.measurements, strict=True)

    @property
    def tuned(self) -> list[tuple[tuple[int, ...], Measurement]]:
        """The knob indices and measurements of the tuned configurations, without baselines."""
        return [(ours.config, trial) for ours, trial in self.rows if ours.name == TUNED]


class RecordStore(SQLiteFile):
    """The records of one run folder.

    A measurement is identified by task, space, fingerprint and configuration. If a measurement with
    the same identity exists, a second one is ignored.

    Args:
        path: the SQLite file.
        read_only: whether the file is only read. This works while another process writes it.

    Raises:
        RunFolderError: the file cannot be opened, is no database of records, or was written by a
            newer version. Every method raises this error if the disk is
            full or the file cannot be read any more.
    """

    @attrs.frozen(kw_only=True)
    class TaskRow:
        """A task in the store, with the design space that its records belong to.

        Attributes:
            id: the id of the row, to which measurements refer.
            task: the task.
            space: the name of the plugin that made the design space.
            fingerprint: the fingerprint of the design space. Records with another fingerprint do
                not apply.
            spending: the seconds that the task's search has taken so far, by part.
        """

        id: int
        task: Task
        space: str
        fingerprint: str
        spending: Spending

    version = SCHEMA_VERSION
    schema = _SCHEMA
    error: ClassVar[type[ChameleonError]] = RunFolderError
    newer = "upgrade chameleon, or tune into another folder (`output=`)"
    later = _CONTINUE
    damaged = _DAMAGED

    @classmethod
    def of_run(cls, folder: Path) -> Self:
        """Open the record store of a run folder for reading, even while a run writes it.

        Args:
            folder: the run folder.

        Raises:
            RunFolderError: the folder holds no run.
        """
        path = folder / RunFile.RECORDS
        if not path.is_file():
            raise RunFolderError(
                f"{folder} is no run folder: there is no {RunFile.RECORDS} in it",
                hint="name the folder that 'chameleon run' wrote (the pipeline's 'output')",
            )
        return cls(path, read_only=True)

    # -- facts about the run ------------------------------------------------------------------

    def fact(self, name: str) -> Any:
        """A fact about the run, such as its versions, as a JSON value; None if it is not stored.

        Args:
            name: the name under which the fact is stored.
        """
        return self._first(json_of, "SELECT value FROM facts WHERE name = ?", (name,))

    def set_fact(self, name: str, value: Any) -> None:
        """Store a JSON value under a name."""
        self.write("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, dumped(value)))

    @property
    def measured(self) -> int:
        """The number of measurements of all tasks."""
        [(count,)] = self.read("SELECT COUNT(*) FROM measurements")
        return int(count)

    def forget(self, *, but: str | None = None) -> None:
        """Delete all records and facts, except for the fact named ``but``."""
        with self.statements() as execute:
            for table in ("comparisons", "measurements", "tasks"):
                execute(f"DELETE FROM {table}", ())  # noqa: S608 - the names are constants
            execute("DELETE FROM facts WHERE name IS NOT ?", (but,))

    @property
    def conditions(self) -> Mapping[str, Any] | None:
        """The conditions of all measurements (``RecordDatabase.Key.conditions``).

        The value is None if the conditions are unknown, or are not the same for all.
        """
        conditions = self.fact(CONDITIONS)
        return None if conditions == MIXED else conditions

    # -- tasks --------------------------------------------------------------------------------

    def add_task(self, task: Task, space: str, fingerprint: str) -> RecordStore.TaskRow:
        """Return the row of a task, or add the row if the store does not have it.

        If the row exists, the task's name and other values that are not part of its key are
        updated.

        Args:
            task: the task.
            space: the name of the provider that made the design space.
            fingerprint: the fingerprint of the design space.
        """
        self.write(
            "INSERT INTO tasks (key, space, fingerprint, name, task) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (key, space, fingerprint) "
            "DO UPDATE SET name = excluded.name, task = excluded.task",
            (task.key, space, fingerprint, task.name, dumped(task.to_json())),
        )
        added = next(
            attrs.evolve(stored, task=task)
            for stored in self.tasks()
            if (stored.task.key, stored.space, stored.fingerprint) == (task.key, space, fingerprint)
        )
        self.set_fact(_PRESENT.format(key=task.key), added.id)
        return added

    def tasks(self) -> list[RecordStore.TaskRow]:
        """All tasks, in the order in which they were added."""
        return self._select(
            _stored_task, "SELECT id, task, space, fingerprint, spending FROM tasks ORDER BY id"
        )

    def present_tasks(self) -> list[RecordStore.TaskRow]:
        """All tasks of the store, each with its latest design space.

        A task has a row for each design space with which a process added it. The method ``tasks``
        returns also the earlier rows, such as those of an earlier version of a plugin.
        """
        return [
            stored
            for stored in self.tasks()
            if self.fact(_PRESENT.format(key=stored.task.key)) in {None, stored.id}
        ]

    def key(self, stored: RecordStore.TaskRow) -> RecordDatabase.Key:
        """The key of a task's records. Its ``conditions`` are empty if they are unknown."""
        conditions = self.conditions or {}
        return RecordDatabase.Key.of(stored.task, stored.space, stored.fingerprint, conditions)

    # -- measurements -------------------------------------------------------------------------

    def add(
        self,
        task_id: int,
        key: int,
        measurement: Measurement,
        *,
        knobs: Mapping[str, Any],
        spending: Spending,
        origin: str | None = None,
        score: float | None = None,
        measured_at: float | None = None,
    ) -> int:
        """Commit one measurement, together with the seconds that its task has taken so far.

        Args:
            task_id: the id of the task's row.
            key: the number of the configuration in its space (``DesignSpace.keys``).
            measurement: the measurement of the configuration.
            knobs: the knob values of the configuration, so that records can be read without the
                space.
            spending: the seconds that the task's search has taken so far, by part.
            origin: the stage that proposed the configuration
                (``Measurement.Origin``).
            score: the cost model's score when the configuration was proposed, in the model's own
                unit; higher is better.
            measured_at: the time of the measurement, in seconds since 1970; by default the present
                time.

        Returns:
            The position of the measurement among those of all tasks (``places``). If the
            configuration was measured before, the position of the earlier measurement.
        """
        m = measurement
        with self.statements() as execute:
            execute(
                _ADD,
                (
                    task_id,
                    str(key),
                    dumped(knobs),
                    time.time() if measured_at is None else measured_at,
                    origin,
                    score,
                    dumped([int(index) for index in m.config]),
                    dumped([float(value) for value in m.seconds]),
                    m.failure,
                    m.message,
                    *(getattr(m, name) for name in Measurement.NUMBERS),
                ),
            )
            self.set_spending(task_id, spending)
            (number,) = execute(
                "SELECT id FROM measurements WHERE task_id = ? AND identity = ?",
                (task_id, str(key)),
            ).fetchone()
        return int(number)

    def set_spending(self, task_id: int, spending: Spending) -> None:
        """Commit the seconds that a task's search has taken so far."""
        self.write(
            "UPDATE tasks SET spending = ? WHERE id = ?", (dumped(attrs.asdict(spending)), task_id)
        )

    def measurements(self, task_id: int) -> list[Measurement]:
        """All measurements of a task, in order of arrival."""
        return self._columns(", ".join(_COLUMNS), task_id, measurement_of)

    @property
    def last_measured_at(self) -> float | None:
        """The time of the last measurement of any task, in seconds since 1970.

        The value is None if the store has no measurement.
        """
        [(at,)] = self.read("SELECT MAX(measured_at) FROM measurements")
        return None if at is None else float(at)

    def origins(self, task_id: int) -> list[str | None]:
        """The stage that proposed each measured configuration, in the order of ``measurements``.

        An entry is None if the measurement was added without a stage.

        Args:
            task_id: the id of the task's row.
        """
        return self._columns("origin", task_id)

    def scores(self, task_id: int) -> list[float | None]:
        """The cost model's score of each measured configuration, in the order of ``measurements``.

        It is the score when the configuration was proposed, in the model's own unit; higher is
        better. An entry is None if no trained model scored the configuration.

        Args:
            task_id: the id of the task's row.
        """
        return self._columns("score", task_id)

    def _columns(
        self, names: str, task_id: int, make: Callable[[tuple[Any, ...]], T] = itemgetter(0)
    ) -> list[T]:
        """Columns of a task's measurements as objects, in order of arrival."""
        sql = f"SELECT {names} FROM measurements WHERE task_id = ? ORDER BY id"  # noqa: S608 - the names are constants
        return self._select(make, sql, (task_id,))

    def places(self, task_id: int) -> list[int]:
        """A number for each measurement of a task; earlier measurements have smaller numbers.

        The numbers of several tasks can be compared, to see which measurement arrived first.

        Args:
            task_id: the task's id in this store.
        """
        return self._columns("id", task_id)

    def measured_at(self, task_id: int) -> list[float]:
        """The time at which each of a task's measurements arrived, in seconds since 1970."""
        return self._columns("measured_at", task_id)

    def decoded(self, task_id: int) -> list[dict[str, Any]]:
        """The knob values of each measured configuration, in the order of ``measurements``.

        Args:
            task_id: the id of the task's row.
        """
        return self._columns("knobs", task_id, json_of)

    def knobs(self, task_id: int, config: Sequence[int]) -> dict[str, Any] | None:
        """The knob values of a measured configuration, or None if it was not measured.

        Args:
            task_id: the id of the task's row.
            config: the knob indices of the configuration.
        """
        sql = "SELECT knobs FROM measurements WHERE task_id = ? AND config = ?"
        return self._first(json_of, sql, (task_id, dumped([int(index) for index in config])))

    def records(
        self, stored: RecordStore.TaskRow
    ) -> list[tuple[RecordDatabase.Record, str | None]]:
        """A task's measurements as records, each with the stage that proposed it."""
        columns = zip(
            self.measurements(stored.id),
            self.decoded(stored.id),
            self.measured_at(stored.id),
            self.origins(stored.id),
            strict=True,
        )
        return [
            (RecordDatabase.Record(measurement=measurement, knobs=knobs, measured_at=at), origin)
            for measurement, knobs, at, origin in columns
        ]

    # -- the final comparison -----------------------------------------------------------------

    def set_comparison(self, task_id: int, comparison: StoredComparison) -> None:
        """Store a task's final comparison, in place of an earlier one."""
        self.write(
            "INSERT OR REPLACE INTO comparisons VALUES (?, ?, ?)",
            (
                task_id,
                dumped([attrs.asdict(contender) for contender in comparison.contenders]),
                dumped([attrs.asdict(measurement) for measurement in comparison.measurements]),
            ),
        )

    def comparison(self, task_id: int) -> StoredComparison | None:
        """A task's final comparison, or None if the task has none yet."""
        sql = "SELECT contenders, measurements FROM comparisons WHERE task_id = ?"
        return self._first(_stored_comparison, sql, (task_id,))

    def _first(
        self, make: Callable[[tuple[Any, ...]], T], sql: str, values: Sequence[Any]
    ) -> T | None:
        """The first row of a query as an object, or None if there is no row."""
        return next(iter(self._select(make, sql, values)), None)

    def _select(
        self, make: Callable[[tuple[Any, ...]], T], sql: str, values: Sequence[Any] = ()
    ) -> list[T]:
        """Run a query, and convert its rows to objects.

        Args:
            make: a function that converts a row to an object.
            sql: the query.
            values: the parameters of the query.

        Raises:
            RunFolderError: the file cannot be read, or has values that no run writes.
        """
        rows = self.read(sql, values)
        try:
            return [make(row) for row in rows]
        except _UNREADABLE as error:
            raise RunFolderError(
                f"cannot read {self.path}: it holds what no run writes ({error})", hint=_DAMAGED
            ) from error


def _stored_task(row: tuple[Any, ...]) -> RecordStore.TaskRow:
    number, task, space, fingerprint, spending = row
    return RecordStore.TaskRow(
        id=number,
        task=Task(**json.loads(task)),
        space=space,
        fingerprint=fingerprint,
        spending=Spending(**json.loads(spending)),
    )


def _stored_comparison(row: tuple[Any, ...]) -> StoredComparison:
    contenders, measurements = map(json.loads, row)
    return StoredComparison(
        contenders=cattrs.structure(contenders, tuple[Contender, ...]),
        measurements=cattrs.structure(measurements, tuple[Measurement, ...]),
    )

"""Every measurement of a run, committed when it arrives, and read back exactly."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import attrs

from chameleon_core.measurement import Measurement
from chameleon_core.spending import Spending
from chameleon_core.stages.jobs import TUNED, Contender
from chameleon_core.store.database import (
    ORIGIN,
    SCORE,
    Database,
    compared_of,
    contender_of,
    dumped,
    json_of,
    measurement_of,
)
from chameleon_core.task import Task

_COLUMNS = "config, seconds, failure, message, max_relative_error, build_seconds, run_seconds"


_PRESENT = "present/{key}"
"""The fact that says which of a task's rows is of the space that it has now."""


@attrs.frozen(kw_only=True)
class StoredTask:
    """A task with the space its records belong to.

    Attributes:
        id: the row; measurements refer to it.
        task: the task.
        space: name of the space provider.
        fingerprint: the design space's; records of another one do not apply.
        spending: seconds spent on it so far.
    """

    id: int
    task: Task
    space: str
    fingerprint: str
    spending: Spending


@attrs.frozen(kw_only=True)
class StoredComparison:
    """A final comparison.

    Attributes:
        contenders: who took part.
        measurements: one per contender, in the same order.
    """

    contenders: tuple[Contender, ...]
    measurements: tuple[Measurement, ...]

    @property
    def rows(self) -> Iterator[tuple[Contender, Measurement]]:
        """Each contender with its measurement."""
        return zip(self.contenders, self.measurements, strict=True)

    @property
    def tuned(self) -> list[tuple[tuple[int, ...], Measurement]]:
        """The configurations of the space with their measurements."""
        return [(one.config, found) for one, found in self.rows if one.name == TUNED]


class RecordStore:
    """The records of one run folder.

    A measurement is identified by task, space, fingerprint and configuration; a second one of
    the same identity is ignored, so the first stands.

    Args:
        path: the SQLite file.
        read_only: only look; works while another process writes.

    Raises:
        RunFolderError: the file cannot be opened; every method raises it where the disk is full
            or the file became unreadable.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._database = Database(path, read_only=read_only)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- facts about the run ------------------------------------------------------------------

    def fact(self, name: str) -> Any:
        """A JSON value kept under a name, or None."""
        found = self._database.made(json_of, "SELECT value FROM facts WHERE name = ?", (name,))
        return found[0] if found else None

    def set_fact(self, name: str, value: Any) -> None:
        """Keep a JSON value under a name."""
        self._database.write("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, dumped(value)))

    @property
    def measured(self) -> int:
        """Measurements of all tasks."""
        [(count,)] = self._database.read("SELECT COUNT(*) FROM measurements")
        return int(count)

    def forget(self, *, but: str | None = None) -> None:
        """Delete everything, except for one fact."""
        with self._database.transaction() as execute:
            for table in ("comparisons", "measurements", "tasks"):
                execute(f"DELETE FROM {table}", ())  # noqa: S608 - constants
            execute("DELETE FROM facts WHERE name IS NOT ?", (but,))

    # -- tasks --------------------------------------------------------------------------------

    def add_task(self, task: Task, space: str, fingerprint: str) -> StoredTask:
        """The task's row, made where there is none; one of an earlier version gets today's name."""
        self._database.write(
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

    def tasks(self) -> list[StoredTask]:
        """All tasks, in the order they were added."""
        return self._database.made(
            _stored_task, "SELECT id, task, space, fingerprint, spending FROM tasks ORDER BY id"
        )

    def present_tasks(self) -> list[StoredTask]:
        """The tasks that are tuned, or were at last: each in the space that it was added with last.

        Records of a task in another space, as with another version of a plugin, are in ``tasks``.
        """
        return [
            stored
            for stored in self.tasks()
            if self.fact(_PRESENT.format(key=stored.task.key)) in {None, stored.id}
        ]

    # -- measurements -------------------------------------------------------------------------

    def transaction(self) -> contextlib.AbstractContextManager[None]:
        """Everything written inside is committed together, at the end, however that comes.

        Raises:
            RunFolderError: it cannot be committed; then nothing of it is.
        """
        return self._database.together()

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
        """Commit one measurement together with the seconds its task has taken so far.

        Args:
            task_id: the task's row.
            key: the configuration's mixed-radix identity (``DesignSpace.keys``).
            measurement: the outcome.
            knobs: the configuration decoded, so that records can be read without the space.
            spending: the task's total at this moment.
            origin: what put it into its batch (``chameleon_core.loop.round.batch.Origin``).
            score: what the cost model said of it when it was proposed, on the model's own scale;
                higher is better.
            measured_at: when it was measured, in seconds since 1970; now by default.

        Returns:
            Its place, as ``places`` tells it; of a configuration that was measured before, that of
            the measurement that stands.
        """
        m = measurement
        with self._database.transaction() as execute:
            added = execute(
                "INSERT OR IGNORE INTO measurements (task_id, identity, config, knobs, seconds, "
                "failure, message, max_relative_error, build_seconds, run_seconds, measured_at, "
                "origin, score) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    task_id,
                    str(key),
                    dumped([int(index) for index in m.config]),
                    dumped(knobs),
                    dumped([float(value) for value in m.seconds]),
                    m.failure,
                    m.message,
                    m.max_relative_error,
                    m.build_seconds,
                    m.run_seconds,
                    time.time() if measured_at is None else measured_at,
                    origin,
                    score,
                ),
            )
            execute(
                "UPDATE tasks SET spending = ? WHERE id = ?",
                (dumped(attrs.asdict(spending)), task_id),
            )
            if added.rowcount:
                return int(added.lastrowid or 0)
            (place,) = execute(
                "SELECT id FROM measurements WHERE task_id = ? AND identity = ?",
                (task_id, str(key)),
            ).fetchone()
        return int(place)

    def set_spending(self, task_id: int, spending: Spending) -> None:
        """Commit the seconds a task has taken so far."""
        self._database.write(
            "UPDATE tasks SET spending = ? WHERE id = ?", (dumped(attrs.asdict(spending)), task_id)
        )

    def measurements(self, task_id: int) -> list[Measurement]:
        """A task's measurements in order of arrival."""
        return self._database.made(
            measurement_of,
            f"SELECT {_COLUMNS} FROM measurements WHERE task_id = ? ORDER BY id",  # noqa: S608 - a constant
            (task_id,),
        )

    @property
    def last_measured_at(self) -> float | None:
        """When the last measurement of any task was made, in seconds since 1970."""
        [(at,)] = self._database.read("SELECT MAX(measured_at) FROM measurements")
        return None if at is None else float(at)

    def origins(self, task_id: int) -> list[str | None]:
        """What put each of a task's measurements into its batch, in the order of ``measurements``.

        None where the version that measured it did not record it.
        """
        return self._column(ORIGIN, task_id)

    def scores(self, task_id: int) -> list[float | None]:
        """What the cost model said of each of a task's measurements, in that order.

        When it was proposed, on the model's own scale, higher is better; None where no trained
        model was asked, or a version that did not record it.
        """
        return self._column(SCORE, task_id)

    def _column(self, name: str, task_id: int) -> list[Any]:
        """A column that files of earlier versions lack; None in each of its rows then."""
        column = name if name in self._database.columns else "NULL"
        rows = self._database.read(
            f"SELECT {column} FROM measurements WHERE task_id = ? ORDER BY id",  # noqa: S608 - constants
            (task_id,),
        )
        return [value for (value,) in rows]

    def places(self, task_id: int) -> list[int]:
        """Where each of a task's measurements is among those of all tasks, in order of arrival."""
        return self._column("id", task_id)

    def measured_at(self, task_id: int) -> list[float]:
        """When each of a task's measurements arrived, in seconds since 1970."""
        return self._column("measured_at", task_id)

    def decoded(self, task_id: int) -> list[dict[str, Any]]:
        """A task's measured configurations decoded, in the order of ``measurements``."""
        return self._database.made(
            json_of, "SELECT knobs FROM measurements WHERE task_id = ? ORDER BY id", (task_id,)
        )

    def knobs(self, task_id: int, config: Sequence[int]) -> dict[str, Any] | None:
        """A measured configuration decoded, or None where it was not measured."""
        found = self._database.made(
            json_of,
            "SELECT knobs FROM measurements WHERE task_id = ? AND config = ?",
            (task_id, dumped([int(index) for index in config])),
        )
        return found[0] if found else None

    # -- the final comparison -----------------------------------------------------------------

    def set_comparison(self, task_id: int, comparison: StoredComparison) -> None:
        """Keep a task's final comparison; it replaces an earlier one."""
        self._database.write(
            "INSERT OR REPLACE INTO comparisons VALUES (?, ?, ?)",
            (
                task_id,
                dumped([attrs.asdict(contender) for contender in comparison.contenders]),
                dumped([attrs.asdict(measurement) for measurement in comparison.measurements]),
            ),
        )

    def comparison(self, task_id: int) -> StoredComparison | None:
        """A task's final comparison, or None where there was none yet."""
        found = self._database.made(
            _stored_comparison,
            "SELECT contenders, measurements FROM comparisons WHERE task_id = ?",
            (task_id,),
        )
        return found[0] if found else None


def _stored_task(row: tuple[Any, ...]) -> StoredTask:
    number, task, space, fingerprint, spending = row
    return StoredTask(
        id=number,
        task=Task(**json.loads(task)),
        space=space,
        fingerprint=fingerprint,
        spending=Spending(**json.loads(spending)),
    )


def _stored_comparison(row: tuple[Any, ...]) -> StoredComparison:
    contenders, measurements = (json.loads(text) for text in row)
    return StoredComparison(
        contenders=tuple(contender_of(value) for value in contenders),
        measurements=tuple(compared_of(value) for value in measurements),
    )

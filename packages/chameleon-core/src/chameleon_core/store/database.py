"""A run's SQLite file: its schema, and what its rows and their JSON values hold."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from chameleon_core.errors import ChameleonError, RunFolderError
from chameleon_core.measurement import FailureKind, Measurement
from chameleon_core.stages import Contender, StageRef
from chameleon_core.store.sqlite_file import SQLiteFile

SCHEMA_VERSION = 1

T = TypeVar("T")

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
    "start anew: `chameleon run --fresh` moves it aside"
)

ORIGIN, SCORE = "origin", "score"
LATER_COLUMNS = {ORIGIN: "TEXT", SCORE: "REAL"}
"""The columns of ``measurements`` that files of earlier versions lack until they are written."""


class Database(SQLiteFile):
    """The connection of one process to a run's SQLite file.

    Raises:
        RunFolderError: the file cannot be opened, is not such a file, or is of a newer version.
    """

    version = SCHEMA_VERSION
    schema = _SCHEMA
    error: ClassVar[type[ChameleonError]] = RunFolderError
    newer = "upgrade chameleon, or tune into another folder with --output"
    later = _CONTINUE
    damaged = _DAMAGED

    def _complete(self, connection: sqlite3.Connection) -> None:
        there = _columns(connection)
        for name, kind in LATER_COLUMNS.items():
            if name not in there:
                # Versions that do not know the column may write beside it, so theirs is ours.
                connection.execute(f"ALTER TABLE measurements ADD COLUMN {name} {kind}")

    def made(
        self, make: Callable[[tuple[Any, ...]], T], sql: str, values: Sequence[Any] = ()
    ) -> list[T]:
        """What the rows of a query hold.

        Args:
            make: what a row becomes.
            sql: the query.
            values: its parameters.

        Raises:
            RunFolderError: the file cannot be read, or holds what no run writes.
        """
        rows = self.read(sql, values)
        try:
            return [make(row) for row in rows]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise RunFolderError(
                f"cannot read {self.path}: it holds what no run writes ({error})", hint=_DAMAGED
            ) from error

    @property
    def columns(self) -> set[str]:
        """The columns of ``measurements``; an earlier version's file, only read, lacks some."""
        with self._sentences("read"):
            return _columns(self._connection)


def _columns(connection: sqlite3.Connection) -> set[str]:
    return {name for _, name, *_ in connection.execute("PRAGMA table_info(measurements)")}


def dumped(value: Any) -> str:
    """JSON as rows hold it."""
    return json.dumps(value, separators=(",", ":"))


def json_of(row: tuple[Any, ...]) -> Any:
    """The JSON value that is a row's only column."""
    (text,) = row
    return json.loads(text)


def measurement_of(row: tuple[Any, ...]) -> Measurement:
    """A measurement; the row's columns are those that ``RecordStore`` selects, in their order."""
    config, seconds, failure, message, error, build_seconds, run_seconds = row
    return Measurement(
        config=tuple(json.loads(config)),
        seconds=tuple(json.loads(seconds)),
        failure=None if failure is None else FailureKind(failure),
        message=message,
        max_relative_error=error,
        build_seconds=build_seconds,
        run_seconds=run_seconds,
    )


def compared_of(value: dict[str, Any]) -> Measurement:
    """A measurement of a comparison, from its JSON values."""
    kind = value["failure"]
    return Measurement(
        **{
            **value,
            "config": tuple(value["config"]),
            "seconds": tuple(value["seconds"]),
            "failure": None if kind is None else FailureKind(kind),
        }
    )


def contender_of(value: dict[str, Any]) -> Contender:
    """A contender of a comparison, from its JSON values."""
    return Contender(
        **{**value, "config": tuple(value["config"]), "stage": StageRef(**value["stage"])}
    )

"""Records in a SQLite file on one machine. Several runs may use the file at once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import structlog
from chameleon_core.api import SQLiteFile
from chameleon_core.plugin_api import ChameleonError, RecordDatabase

from chameleon_records._databases.contract import ManagedDatabase, Selection
from chameleon_records._format import (
    VERSION,
    RecordsError,
    key_from_json,
    normalise,
    record_from_json,
    record_to_json,
)

log = structlog.get_logger()

APPLICATION = 0x43687263
"""The ``application_id`` that SQLite stores in these files. Run folders' files have other
tables."""

_SCHEMA = f"""
PRAGMA application_id = {APPLICATION};
CREATE TABLE IF NOT EXISTS keys (
    id INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    family TEXT NOT NULL,
    key TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS families ON keys (family);
CREATE TABLE IF NOT EXISTS records (
    key_id INTEGER NOT NULL REFERENCES keys (id),
    config TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (key_id, config)
) WITHOUT ROWID;
"""

_ID = "SELECT id FROM keys WHERE digest = ?"


class RecordsFile(SQLiteFile):
    """The SQLite file of a record database, with write-ahead logging if possible."""

    version = VERSION
    schema = _SCHEMA
    error: ClassVar[type[ChameleonError]] = RecordsError
    newer = "Upgrade chameleon, or name another file under 'records'."
    later = (
        "Restore access or free space, or do without (`records: none`, CHAMELEON_RECORDS=none); "
        "the run folder has its measurements all the same."
    )
    damaged = (
        "Move it away, or save what can be read of it with `sqlite3 FILE .recover`; "
        "`chameleon records add RUN...` makes a new one of run folders."
    )

    def _check_version(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        if application != APPLICATION and (tables or self.read_only):
            raise RecordsError(
                f"{self.path} is no record database",
                hint="Name a file of its own; `chameleon records add RUN` takes a run folder's "
                "measurements over.",
            )
        super()._check_version(connection)


class SQLiteDatabase(ManagedDatabase):
    """Records in a SQLite file."""

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self._path = path
        self._file: RecordsFile | None = None
        if path.exists():
            try:
                self._file = RecordsFile(path)
            except RecordsError as error:
                # A locked file or a full disk may be usable when records are added. Otherwise
                # adding raises the error.
                self._file = RecordsFile(path, read_only=True)
                reason = getattr(error.__cause__, "sqlite_errorname", "")
                self.writable = not reason.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN"))

    def keys(self, like: RecordDatabase.Key | None = None) -> Sequence[RecordDatabase.Key]:
        where, values = ("", ()) if like is None else (" WHERE family = ?", (like.family,))
        rows = self._read(f"SELECT key FROM keys{where} ORDER BY digest", values)  # noqa: S608
        return [key for (text,) in rows if (key := self._parse(key_from_json, text)) is not None]

    def records(self, key: RecordDatabase.Key) -> Sequence[RecordDatabase.Record]:
        rows = self._read(
            f"SELECT record FROM records WHERE key_id = ({_ID}) ORDER BY config",  # noqa: S608
            (key.digest,),
        )
        read = (self._parse(record_from_json, text) for (text,) in rows)
        return [record for record in read if record is not None]

    def add(
        self, records_by_key: Mapping[RecordDatabase.Key, Sequence[RecordDatabase.Record]]
    ) -> int:
        if not self.writable:
            raise self.read_only()
        changed = 0
        with self._writable_file().statements() as execute:
            for key, records in records_by_key.items():
                if not records:
                    continue
                execute(
                    "INSERT OR IGNORE INTO keys (digest, family, key) VALUES (?, ?, ?)",
                    (key.digest, key.family, _text(key.to_json())),
                )
                ((row,),) = execute(_ID, (key.digest,)).fetchall()
                changed += sum(self._put(execute, row, normalise(record)) for record in records)
        return changed

    def _put(
        self, execute: Callable[..., sqlite3.Cursor], row: int, record: RecordDatabase.Record
    ) -> bool:
        config, text = _text(record.measurement.config), _text(record_to_json(record))
        known = execute(
            "SELECT record FROM records WHERE key_id = ? AND config = ?", (row, config)
        ).fetchone()
        if known is not None:
            before = self._parse(record_from_json, known[0])
            if known[0] == text or (before is not None and before.rank <= record.rank):
                return False
        execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", (row, config, text))
        return True

    def prune(self, select: Selection) -> int:
        if not self.writable:
            raise self.read_only()
        if self._file is None:
            return 0
        removed = 0
        # The file is locked from the first read on, so other runs wait until the end to add
        # records.
        with self._writable_file().statements() as execute:
            for key in self.keys():
                records = list(self.records(key))
                selected = {record.measurement.config for record in select(key, records)}
                for record in records:
                    if record.measurement.config not in selected:
                        config = _text(record.measurement.config)
                        execute(
                            f"DELETE FROM records WHERE key_id = ({_ID}) AND config = ?",  # noqa: S608
                            (key.digest, config),
                        )
                        removed += 1
            execute("DELETE FROM keys WHERE id NOT IN (SELECT key_id FROM records)", ())
        return removed

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _writable_file(self) -> RecordsFile:
        if self._file is None or self._file.read_only:
            with RecordsError.on_os_error(f"cannot write {self._path}", hint=RecordsFile.later):
                self._path.parent.mkdir(parents=True, exist_ok=True)
            opened = RecordsFile(self._path)
            self.close()
            self._file = opened
        return self._file

    def _read(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return [] if self._file is None else self._file.read(sql, values)

    def _parse(self, make: Callable[[Any], Any], text: str) -> Any:
        """The record or key in a row's text; None with a warning if it is invalid."""
        try:
            return make(json.loads(text))
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            log.warning("record_left_out", database=self.place, problem=str(error))
            return None


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))

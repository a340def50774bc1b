"""A SQLite file in which each write is one commit, with errors that users can understand."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from chameleon_system.api import Closeable

from chameleon_core._errors import ChameleonError

TIMEOUT = 10.0
"""Seconds to wait for other processes that have locked the file."""
PAUSE = 0.01
"""Seconds between two attempts to change the mode of a file."""


class SQLiteFile(Closeable):
    """The connection of one process to a SQLite file.

    The file uses write-ahead logging with ``synchronous=NORMAL``. A commit survives the end of the
    process, even ``kill -9``. A power cut may lose the last commits, but does not damage the file.

    Args:
        path: the file. It is made if it does not exist, unless ``read_only`` is set.
        read_only: whether the file is only read. This works while another process writes it, and in
            a read-only folder.

    Raises:
        ChameleonError: the file cannot be opened, is no database of this kind, or was written by a
            newer version.

    Attributes:
        path: the file.
        read_only: whether the file is only read.
    """

    version: ClassVar[int]
    """The version of the schema. A file with a newer version is refused."""

    schema: ClassVar[str]
    """SQL statements that make missing tables."""

    error: ClassVar[type[ChameleonError]]
    """The class of all errors that this class raises."""

    newer: ClassVar[str]
    """The hint about a file with a newer version."""

    later: ClassVar[str]
    """The hint about a file that cannot be used at the moment."""

    damaged: ClassVar[str]
    """The hint about a damaged file."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        with self._translate_errors("open"):
            self._connection = self._open_to_read() if read_only else self._open_to_write()

    def _open_to_write(self) -> sqlite3.Connection:
        # Autocommit mode: outside a transaction, each statement is one commit.
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=TIMEOUT)
        with _closed_after_errors(connection):
            self._check(connection)
            _log_ahead(connection)
            connection.execute("PRAGMA synchronous=NORMAL")
            # Other processes see all tables and the version, or nothing.
            version = f"PRAGMA user_version={self.version}"
            connection.executescript(f"BEGIN IMMEDIATE;{self.schema};{version};COMMIT")
        return connection

    def _open_to_read(self) -> sqlite3.Connection:
        quoted = self.path.absolute().as_uri()
        connect = functools.partial(
            sqlite3.connect, uri=True, isolation_level=None, timeout=TIMEOUT
        )
        connection = connect(f"{quoted}?mode=ro")
        try:
            with _closed_after_errors(connection):
                self._check(connection)
        except sqlite3.OperationalError:
            # SQLite needs a -shm file to read a WAL file, and cannot make one in a read-only
            # folder. Without a -wal file the database file is complete, and can be read as
            # immutable.
            if Path(f"{self.path}-wal").exists():
                raise
            connection = connect(f"{quoted}?immutable=1")
            with _closed_after_errors(connection):
                self._check(connection)
        return connection

    def _check(self, connection: sqlite3.Connection) -> None:
        """Check the file in one read transaction, since another process may make it meanwhile."""
        connection.execute("BEGIN")
        self._check_version(connection)
        connection.execute("COMMIT")

    def _check_version(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > self.version:
            raise self.error(
                f"{self.path} was written by a newer version of chameleon", hint=self.newer
            )
        if self.read_only and not version:  # which is written last, after the tables
            raise self.error(f"{self.path} is empty: its writer has just begun, or was killed")
        connection.execute("PRAGMA trusted_schema=OFF")
        programs = "SELECT COUNT(*) FROM sqlite_master WHERE type IN ('trigger', 'view')"
        if connection.execute(programs).fetchone() != (0,):
            raise self.error(
                f"{self.path} has triggers or views, which are programs: records are data and "
                "nothing else",
                hint=self.damaged,
            )

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a query, and return its rows."""
        with self._translate_errors("read"):
            return self._connection.execute(sql, values).fetchall()

    def write(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Execute and commit one statement, and return the id of the row that it inserted."""
        with self._translate_errors("write to"):
            return self._connection.execute(sql, values).lastrowid or 0

    @contextlib.contextmanager
    def statements(self) -> Iterator[Callable[[str, Sequence[Any]], sqlite3.Cursor]]:
        """A context whose SQL statements are committed together at its end.

        The context yields the function that executes a statement.
        """
        with self._translate_errors("write to"):
            if self._connection.in_transaction:
                yield self._connection.execute
                return
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """A context whose writes are one commit, which is made even if the context raises.

        So results written before an interruption are kept. They are lost only if the file cannot be
        written.
        """
        with self._translate_errors("write to"):
            self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            with self._translate_errors("write to"):
                # If the disk is full, SQLite itself ends the transaction.
                if self._connection.in_transaction:
                    self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._connection.close()

    @contextlib.contextmanager
    def _translate_errors(self, doing: str) -> Iterator[None]:
        """Turn SQLite's errors into errors with a message and a hint for the user."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self.error(
                f"cannot {doing} {self.path}: {_reason(error, self.path)}",
                hint=self.damaged if _damaged(error) else self.later,
            ) from error


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Use write-ahead logging, and wait for other processes that are about to do the same.

    SQLite itself does not wait there, since two connections that change the mode would wait for
    each other.
    """
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorname.startswith("SQLITE_BUSY")
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(PAUSE)
        else:
            return


@contextlib.contextmanager
def _closed_after_errors(connection: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _damaged(error: Exception) -> bool:
    name = getattr(error, "sqlite_errorname", None) or ""
    # SQLite quotes names of a damaged schema, which may not be valid text.
    return isinstance(error, UnicodeDecodeError) or name.startswith(
        ("SQLITE_NOTADB", "SQLITE_CORRUPT")
    )


def _reason(error: Exception, path: Path) -> str:
    name = getattr(error, "sqlite_errorname", None) or ""
    if name.startswith("SQLITE_NOTADB"):
        return "it is not a SQLite file"
    if _damaged(error):
        return f"the file is damaged ({error})"
    if name.startswith("SQLITE_READONLY") or not os.access(path.parent, os.W_OK):
        return "the folder is read-only"
    if name.startswith("SQLITE_CANTOPEN"):
        return "there is no such file" if not path.exists() else os.strerror(errno.EACCES)
    full = "the disk may be full, or a size limit reached"
    reasons = {"SQLITE_FULL": "the disk is full", "SQLITE_IOERR": f"{error} ({full})"}
    return next((said for code, said in reasons.items() if name.startswith(code)), str(error))

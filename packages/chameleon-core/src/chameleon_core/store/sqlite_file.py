"""A SQLite file whose every commit is on its own and whose errors are sentences."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from chameleon_core.errors import ChameleonError


class SQLiteFile:
    """The connection of one process to a SQLite file.

    Write-ahead logging with ``synchronous=NORMAL``: a commit survives the death of the process
    (``kill -9`` included); a power cut may lose the last ones, never the file.

    Args:
        path: the file; made when missing, unless ``read_only``.
        read_only: only look; works while another process writes, and in a read-only folder.

    Raises:
        ChameleonError: the file cannot be opened, is not such a file, or is of a newer version.

    Attributes:
        path: the file.
        read_only: whether it is only looked at.
    """

    version: ClassVar[int]
    """Of the schema; a file of a newer one is refused."""

    schema: ClassVar[str]
    """Statements that make what is missing."""

    error: ClassVar[type[ChameleonError]]
    """What everything that goes wrong is raised as."""

    newer: ClassVar[str]
    """What to do about a file of a newer version."""

    later: ClassVar[str]
    """What to do where the file cannot be used now."""

    damaged: ClassVar[str]
    """What to do about a file that is damaged."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self.read_only = read_only
        with self._sentences("open"):
            self._connection = self._open_to_read() if read_only else self._open_to_write()

    def _open_to_write(self) -> sqlite3.Connection:
        # Autocommit: one statement is one commit, unless a transaction is asked for.
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=10.0)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            self._check_version(connection)
            connection.executescript(self.schema)
            self._complete(connection)
            connection.execute(f"PRAGMA user_version={self.version}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_to_read(self) -> sqlite3.Connection:
        quoted = self.path.absolute().as_uri()
        connection = sqlite3.connect(f"{quoted}?mode=ro", uri=True, timeout=10.0)
        try:
            self._check_version(connection)
        except sqlite3.OperationalError:
            # Reading a WAL file needs its -shm file, which a read-only folder cannot get; where
            # there is no -wal file left nothing can be missing and SQLite need not look for it.
            connection.close()
            if Path(f"{self.path}-wal").exists():
                raise
            connection = sqlite3.connect(f"{quoted}?immutable=1", uri=True)
            self._check_version(connection)
        return connection

    def _complete(self, connection: sqlite3.Connection) -> None:
        """Add to a file what versions before this one left out."""

    def _check_version(self, connection: sqlite3.Connection) -> None:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > self.version:
            raise self.error(
                f"{self.path} was written by a newer version of chameleon", hint=self.newer
            )
        connection.execute("PRAGMA trusted_schema=OFF")
        programs = "SELECT COUNT(*) FROM sqlite_master WHERE type IN ('trigger', 'view')"
        if connection.execute(programs).fetchone() != (0,):
            raise self.error(
                f"{self.path} has triggers or views, which are programs: records are data and "
                "nothing else",
                hint=self.damaged,
            )

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with self._sentences("read"):
            return self._connection.execute(sql, values).fetchall()

    def write(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Execute and commit one statement; the id of the row it inserted."""
        with self._sentences("write to"):
            return self._connection.execute(sql, values).lastrowid or 0

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Callable[[str, Sequence[Any]], sqlite3.Cursor]]:
        """Several statements as one commit: yields the function that executes one."""
        with self._sentences("write to"):
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
    def together(self) -> Iterator[None]:
        """One commit for everything written inside, made even if the inside raises.

        Results written before an interruption stay; only a file that cannot be written loses them.
        """
        with self._sentences("write to"):
            self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            with self._sentences("write to"):
                # SQLite itself ends the transaction where the disk is full.
                if self._connection.in_transaction:
                    self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _sentences(self, doing: str) -> Iterator[None]:
        """Turn SQLite's errors into ones a user can act on."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self.error(
                f"cannot {doing} {self.path}: {_reason(error, self.path)}",
                hint=self.damaged if _damaged(error) else self.later,
            ) from error


def _damaged(error: Exception) -> bool:
    name = getattr(error, "sqlite_errorname", None) or ""
    # SQLite quotes names of a damaged schema, which are no text then.
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

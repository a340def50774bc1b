"""Opens the record database at a location."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from chameleon_core.plugin_api import records_location

from chameleon_records._databases.contract import ManagedDatabase
from chameleon_records._databases.folder import FolderDatabase
from chameleon_records._databases.http import http_records
from chameleon_records._databases.parts import SUFFIX, InMemoryDatabase
from chameleon_records._databases.sqlite import SQLiteDatabase
from chameleon_records._format import RecordsError, Table, load
from chameleon_records._options import FilesOptions

_URLS = ("http://", "https://")

_FILES = (".sqlite", ".db")
"""Suffixes of files that do not exist yet. A path with another suffix is a folder."""


def open_files(options: FilesOptions) -> ManagedDatabase:
    """Open the database that the key ``records`` of a pipeline names."""
    return open_database(str(user_location()) if options.location is None else options.location)


def open_database(location: str) -> ManagedDatabase:
    """Open the database at a location; one that does not exist yet is empty."""
    if location.startswith(_URLS):
        return http_records(location)
    if "://" in location:
        raise RecordsError(
            f"records cannot be read from {location!r}",
            hint="Name a path, or a URL that begins with http:// or https://.",
        )
    path = Path(location).expanduser()
    if path.suffix == SUFFIX:
        return _exported(path)
    if path.is_dir() or not (path.exists() or path.suffix in _FILES):
        return FolderDatabase(path)
    return SQLiteDatabase(path)


@contextlib.contextmanager
def open_at(place: str | None, *, must_exist: bool = False) -> Iterator[ManagedDatabase]:
    """A context with the database at a location, or with the one that runs use by default."""
    place = default_place() if place is None else place
    if must_exist and "://" not in place and not Path(place).expanduser().exists():
        raise RecordsError(
            f"there are no records at {place}",
            hint="`chameleon run` adds to the user's own; `chameleon records add RUN` does, too.",
        )
    with contextlib.closing(open_database(place)) as database:
        yield database


def default_place() -> str:
    """The location of the database that commands use by default."""
    place = records_location()
    return str(user_location()) if place in {None, "none"} else place


def _exported(path: Path) -> InMemoryDatabase:
    hint = "Name a file that `chameleon records export` wrote."
    with RecordsError.on_os_error(f"cannot read {path}", hint=hint):
        content = path.read_bytes()
    return InMemoryDatabase(str(path), Table([load(content, str(path))]))


NAME = "records.sqlite"


def user_location() -> Path:
    """The location of the user's own database: ``$XDG_DATA_HOME/chameleon/records.sqlite``."""
    home = os.environ.get("XDG_DATA_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "share"
    return base / "chameleon" / NAME

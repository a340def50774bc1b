"""Opens the database at a location that a user names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from chameleon_core.plugin_api import NO_RECORDS, OWN_RECORDS, RECORDS_VARIABLE

from chameleon_records._databases.contract import PlacedRecords
from chameleon_records._databases.folder import FolderRecords
from chameleon_records._databases.http import http_records
from chameleon_records._databases.parts import SUFFIX, ReadRecords
from chameleon_records._databases.sqlite import SQLiteRecords
from chameleon_records._format import RecordsError, Table, load
from chameleon_records._options import FilesOptions

_URLS = ("http://", "https://")

_FILES = (".sqlite", ".db")
"""Suffixes of files that do not exist yet. A path with another suffix is a folder."""


def opened_files(options: FilesOptions) -> PlacedRecords:
    """Open the database that the key ``records`` of a pipeline names."""
    return opened(str(own_location()) if options.location is None else options.location)


def opened(location: str) -> PlacedRecords:
    """Open the database at a location."""
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
        return FolderRecords(path)
    return SQLiteRecords(path)


@contextlib.contextmanager
def opened_at(place: str | None, *, to_read: bool = False) -> Iterator[PlacedRecords]:
    """Open a database, and close it at the end of the context."""
    place = default_place() if place is None else place
    if to_read and "://" not in place and not Path(place).expanduser().exists():
        raise RecordsError(
            f"there are no records at {place}",
            hint="`chameleon run` adds to the user's own; `chameleon records add RUN` does, too.",
        )
    with contextlib.closing(opened(place)) as database:
        yield database


def default_place() -> str:
    """The location of the database that commands use by default."""
    named = os.environ.get(RECORDS_VARIABLE, "")
    return str(own_location()) if named in {"", NO_RECORDS, OWN_RECORDS} else named


def _exported(path: Path) -> ReadRecords:
    hint = "Name a file that `chameleon records export` wrote."
    with RecordsError.on_os_error(f"cannot read {path}", hint=hint):
        content = path.read_bytes()
    return ReadRecords(str(path), Table([load(content, str(path))]))


NAME = "records.sqlite"


def own_location() -> Path:
    """The location of the user's own database: ``$XDG_DATA_HOME/chameleon/records.sqlite``."""
    home = os.environ.get("XDG_DATA_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "share"
    return base / "chameleon" / NAME

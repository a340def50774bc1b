"""Records that are read as a whole, from files that never change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from chameleon_core.plugin_api import RecordDatabase

from chameleon_records._databases.contract import ManagedDatabase, Selection
from chameleon_records._format import NAME, VERSION, RecordsError, Table, check_version

SUFFIX = ".jsonl"
"""The suffix of files with records."""

INDEX = "index.json"
"""The file that lists the parts of a folder, because readers over HTTP cannot list it."""

_DIGITS = 64


class InMemoryDatabase(ManagedDatabase):
    """Records in memory, read from a place such as an exported file."""

    writable = False

    def __init__(self, place: str, table: Table) -> None:
        self.place = place
        self._table = table

    def keys(self, like: RecordDatabase.Key | None = None) -> Sequence[RecordDatabase.Key]:
        return self._table.keys(like)

    def records(self, key: RecordDatabase.Key) -> Sequence[RecordDatabase.Record]:
        return self._table.records(key)

    def add(self, records: Mapping[RecordDatabase.Key, Sequence[RecordDatabase.Record]]) -> int:
        del records
        raise self.read_only()

    def prune(self, select: Selection) -> int:
        del select
        raise self.read_only()


def part_name(content: bytes) -> str:
    """The file name of a part, made from a digest of its content."""
    return f"{hashlib.sha256(content).hexdigest()}{SUFFIX}"


def is_part(name: str) -> bool:
    """Whether a string has the form of a part's file name, which leads to no other folder."""
    digits = name.removesuffix(SUFFIX)
    return (
        name.endswith(SUFFIX) and len(digits) == _DIGITS and set(digits) <= set("0123456789abcdef")
    )


def check_part(name: str, content: bytes, place: str) -> bytes:
    """Return the content of a part; raise an error if the digest in its name is of another."""
    if part_name(content) != name:
        raise RecordsError(
            f"{place} is half written or was changed: its content is not what its name says",
            hint="Remove it; its records are still in the run folders that they come from.",
        )
    return content


def index_of(names: Sequence[str]) -> bytes:
    """The index of a folder of records, which lists its parts."""
    value = {"format": NAME, "version": VERSION, "parts": sorted(names)}
    return f"{json.dumps(value, indent=1)}\n".encode()


def parts_of(content: bytes, place: str) -> list[str]:
    """The names of the parts in the index of a folder of records."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or value.get("format") != NAME:
        raise RecordsError(f"{place} is no index of records", hint="Look at the URL in a browser.")
    check_version(value.get("version"), place)
    names = value.get("parts")
    if not isinstance(names, list) or not all(isinstance(n, str) and is_part(n) for n in names):
        raise RecordsError(f"{place} names what is no part", hint="Write the index anew.")
    return names

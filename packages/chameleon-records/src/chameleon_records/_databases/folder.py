"""Records in a folder, which may be on a network share. No file is locked or changed.

Each writer adds files (parts), which have another name until they are complete. Two writers that
add the same records write the same part.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import structlog
from chameleon_core.plugin_api import RecordDatabase
from chameleon_system.api import write_atomic

from chameleon_records._databases import parts
from chameleon_records._databases.contract import Selection
from chameleon_records._format import Records, RecordsError, Table, dump, load

log = structlog.get_logger()


class FolderDatabase(parts.InMemoryDatabase):
    """Records in a folder of parts, of which damaged ones are skipped with a warning."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), Table())
        self._path = path
        self._read: set[str] = set()
        for name in self._names():
            try:
                content = (path / name).read_bytes()
                self._table.merge(load(parts.check_part(name, content, name), name))
                self._read.add(name)
            except (OSError, RecordsError) as error:
                log.warning("records_left_out", folder=self.place, part=name, problem=str(error))
        self.writable = os.access(path if path.exists() else _nearest_existing(path), os.W_OK)

    def add(self, records: Mapping[RecordDatabase.Key, Sequence[RecordDatabase.Record]]) -> int:
        if not self.writable:
            raise self.read_only()
        changed = self._table.merge(records)
        if changed:
            self._write(changed)
        return sum(map(len, changed.values()))

    def prune(self, select: Selection) -> int:
        before = self._table.all_records()
        after = {key: select(key, records) for key, records in before.items()}
        removed = sum(map(len, before.values())) - sum(map(len, after.values()))
        if not removed:
            return 0
        # Parts that other writers add meanwhile were not read, so they stay.
        read = [name for name in self._names() if name in self._read]
        written = self._write(after) if any(after.values()) else None
        with self._writing():
            for name in read:
                if name != written:
                    (self._path / name).unlink(missing_ok=True)
            self._index()
        self._table = Table([after])
        self._read = set() if written is None else {written}
        return removed

    def _write(self, records: Records) -> str:
        content = dump(records)
        name = parts.part_name(content)
        with self._writing():
            self._path.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path / name, content)
            self._index()
        self._read.add(name)
        return name

    def _index(self) -> None:
        """Write the index of all complete parts, again if other writers add parts meanwhile."""
        indexed = None
        while indexed != (names := self._names()):
            write_atomic(self._path / parts.INDEX, parts.index_of(names))
            indexed = names

    def _names(self) -> list[str]:
        hint = "Restore access to it, or name another place under 'records'."
        with (
            RecordsError.on_os_error(f"cannot read {self._path}", hint=hint),
            suppress(FileNotFoundError),
        ):
            return sorted(file.name for file in self._path.iterdir() if parts.is_part(file.name))
        return []

    def _writing(self) -> AbstractContextManager[None]:
        return RecordsError.on_os_error(
            f"cannot write to {self._path}",
            hint="Restore access or free space; the run folder has its measurements all the same, "
            "and `chameleon records add RUN` adds them later.",
        )


def _nearest_existing(path: Path) -> Path:
    """The innermost existing folder above a path."""
    return next(folder for folder in path.absolute().parents if folder.exists())

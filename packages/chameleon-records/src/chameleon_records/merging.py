"""Merges records of several sources: the best record of each configuration stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from chameleon_core.stages import Record, RecordKey
from chameleon_core.stages.record_database import rank

from chameleon_records.format import Records, normal

Config = tuple[int, ...]


class Table:
    """Records in memory, by key and configuration, into which further records are merged.

    Records may be merged repeatedly and in any order, with the same result, because the record of a
    configuration with the lowest rank always stays.
    """

    def __init__(self, tables: Iterable[Mapping[RecordKey, Sequence[Record]]] = ()) -> None:
        self._records: dict[RecordKey, dict[Config, Record]] = {}
        for records in tables:
            self.merge(records)

    def merge(self, added: Mapping[RecordKey, Sequence[Record]]) -> Records:
        """Add records, and return those that changed the table."""
        changed: Records = {}
        for key, records in added.items():
            known = self._records.setdefault(key, {})
            for record in map(normal, records):
                config = record.measurement.config
                if config not in known or rank(record) < rank(known[config]):
                    known[config] = record
                    changed.setdefault(key, []).append(record)
        return changed

    def keys(self, like: RecordKey | None = None) -> list[RecordKey]:
        """The keys that have records, sorted by digest.

        Args:
            like: a key. Only keys of the same ``family`` are returned; all keys if None.
        """
        keys = (key for key, records in self._records.items() if records)
        alike = (key for key in keys if like is None or key.family == like.family)
        return sorted(alike, key=lambda key: key.digest)

    def records(self, key: RecordKey) -> list[Record]:
        """The records of a key, sorted by configuration."""
        return [record for _, record in sorted(self._records.get(key, {}).items())]

    def everything(self) -> Records:
        """All records, by key."""
        return {key: self.records(key) for key in self.keys()}

"""The base class of databases that ``chameleon records`` can list and prune.

A run needs only the methods of ``RecordDatabase``, so a plugin's database need not have these.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import attrs
from chameleon_core.plugin_api import RecordDatabase

from chameleon_records._format import Records, RecordsError

Selection = Callable[[RecordDatabase.Key, list[RecordDatabase.Record]], list[RecordDatabase.Record]]
"""Returns the records of a key to keep."""


class ManagedDatabase(RecordDatabase):
    """A record database at a file, a folder or a URL."""

    def all_records(self) -> Records:
        return {key: list(self.records(key)) for key in self.keys()}

    @abstractmethod
    def prune(self, select: Selection) -> int:
        """Remove all records that are not selected, and return the number of removed records."""

    def read_only(self) -> RecordsError:
        """The error about a change of a read-only database."""
        return RecordsError(
            f"{self.place} can only be read",
            hint="Name a SQLite file or a folder that can be written, or export to one and host "
            "that.",
        )


@attrs.frozen(kw_only=True)
class Rules:
    """Rules about records to remove: a record is removed if it matches at least one rule.

    Attributes:
        before: remove records that were measured before this time, in seconds since 1970.
        versions: remove records of these versions of distributions, such as ``apache-tvm=0.26.0``.
        targets: remove records of targets that contain one of these strings, such as ``znver2``.
        best: remove failures, and all but this number of the fastest records of each task.
    """

    before: float | None = None
    versions: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    best: int | None = None

    def select(
        self, key: RecordDatabase.Key, records: list[RecordDatabase.Record]
    ) -> list[RecordDatabase.Record]:
        """The records of a key that no rule removes."""
        if self._drops_key(key):
            return []
        recent = [
            record for record in records if self.before is None or record.measured_at >= self.before
        ]
        if self.best is None:
            return recent
        valid = [record for record in recent if record.measurement.ok]
        valid.sort(key=lambda record: (record.measurement.cost, record.measurement.config))
        return valid[: self.best]

    def _drops_key(self, key: RecordDatabase.Key) -> bool:
        versions = key.conditions.get("versions")
        if isinstance(versions, dict):
            own = {f"{name}={version}" for name, version in versions.items()}
            if own & set(self.versions):
                return True
        return any(text in key.target for text in self.targets)

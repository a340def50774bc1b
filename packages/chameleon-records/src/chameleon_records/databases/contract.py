"""Databases as the command ``chameleon records`` needs them, beyond a run's needs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import attrs
from chameleon_core.stages import Record, RecordDatabase, RecordKey

from chameleon_records.errors import RecordsError
from chameleon_records.format import Records

Kept = Callable[[RecordKey, list[Record]], list[Record]]
"""Which of a key's records stay."""


class PlacedRecords(RecordDatabase):
    """Records at a place that a user named."""

    def everything(self) -> Records:
        """All records by their keys."""
        return {key: list(self.records(key)) for key in self.keys()}

    @abstractmethod
    def keep(self, kept: Kept) -> int:
        """Drop all records but some; how many went.

        Args:
            kept: says for each key which stay.

        Raises:
            RecordsError: nothing can be changed here.
        """

    def read_only(self) -> RecordsError:
        """The error if something is to be changed that can only be read."""
        return RecordsError(
            f"{self.place} can only be read",
            hint="Name a SQLite file or a folder that can be written, or export to one and host "
            "that.",
        )


@attrs.frozen(kw_only=True)
class Rules:
    """Names records to remove; one rule suffices.

    Attributes:
        before: those measured before this time, in seconds since 1970.
        versions: those of these versions of distributions, as ``apache-tvm=0.26.0``.
        targets: those of targets in which one of these texts is, such as ``znver2``.
        best: all but the fastest so many of each task; what failed goes first.
    """

    before: float | None = None
    versions: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    best: int | None = None

    def kept(self, key: RecordKey, records: list[Record]) -> list[Record]:
        """The records of a key that stay."""
        if self._goes(key):
            return []
        recent = [
            record for record in records if self.before is None or record.measured_at >= self.before
        ]
        if self.best is None:
            return recent
        valid = [record for record in recent if record.measurement.ok]
        valid.sort(key=lambda record: (record.measurement.cost, record.measurement.config))
        return valid[: self.best]

    def _goes(self, key: RecordKey) -> bool:
        versions = key.conditions.get("versions")
        if isinstance(versions, dict):
            own = {f"{name}={version}" for name, version in versions.items()}
            if own & set(self.versions):
                return True
        return any(text in key.target for text in self.targets)

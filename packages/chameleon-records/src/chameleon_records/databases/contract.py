"""What a database can do beyond a run's needs, for the command ``chameleon records``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

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
        """What is raised where something is to be changed that can only be read."""
        return RecordsError(
            f"{self.place} can only be read",
            hint="Name a SQLite file or a folder that can be written, or export to one and host "
            "that.",
        )

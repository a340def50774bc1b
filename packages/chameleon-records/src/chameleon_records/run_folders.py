"""What a run folder has that a database can keep."""

from __future__ import annotations

from pathlib import Path

from chameleon_core.loop.end.kept_records import kept_records
from chameleon_core.run_folder import read_store

from chameleon_records.errors import RecordsError
from chameleon_records.format import Records


def records_of_run(folder: Path) -> Records:
    """The measurements that a run has made itself, by what they depend on.

    Raises:
        RunFolderError: it is no run folder, or cannot be read.
        RecordsError: nobody knows what its measurements depend on.
    """
    with read_store(folder) as store:
        found = kept_records(store)
        measured = store.measured
    if not found and measured:
        raise RecordsError(
            f"{folder} does not say under which conditions it was measured",
            hint="It was written by an earlier version, by a runner whose times are shared with "
            "nobody (a table's, a fleet's), or with several versions. Tune again to share it.",
        )
    return found


__all__ = ["records_of_run"]

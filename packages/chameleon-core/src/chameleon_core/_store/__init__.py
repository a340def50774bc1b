"""The store of a run: all tasks, measurements and comparisons in one SQLite file."""

from chameleon_core._store.records import RecordStore, StoredComparison

__all__ = ["RecordStore", "StoredComparison"]

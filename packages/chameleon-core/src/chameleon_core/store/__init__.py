"""The store of a run: every task, measurement and comparison in one SQLite file."""

from chameleon_core.store.database import Database
from chameleon_core.store.records import RecordStore, StoredComparison, StoredTask

__all__ = ["Database", "RecordStore", "StoredComparison", "StoredTask"]

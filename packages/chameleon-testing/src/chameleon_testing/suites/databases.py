"""The suite of record databases."""

from __future__ import annotations

import tempfile
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from chameleon_core.measurement import FailureKind, Measurement
from chameleon_core.plugins import make_stage
from chameleon_core.stages import Record, RecordDatabase, RecordKey

from chameleon_testing.sentences import require
from chameleon_testing.suites.base import StageSuite


class RecordDatabaseSuite(StageSuite):
    """Checks of a record database, on one that is new.

    Attributes:
        location: name of the file or folder that it is made at, where its record says which option
            a place is (``place_option``).
        persistent: whether another object of the same options finds what was added.
    """

    kind = "record_databases"
    location: ClassVar[str] = "records.sqlite"
    persistent: ClassVar[bool] = True

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """A function that opens one database, a new one, again and again."""
        with tempfile.TemporaryDirectory() as folder:
            place = self.registered.place_option
            given = {place: str(Path(folder) / self.location)} if place else {}

            def open_again() -> RecordDatabase:
                plain = type(self)()
                plain.options = {**self.options, **given}  # type: ignore[misc]
                options = plain.made_options()
                made: RecordDatabase = make_stage(self.about, self.registered, options)
                return made

            yield open_again

    def test_what_was_added(self) -> None:
        """What is added is found under its key, again after closing, and nothing else is."""
        with self.opened() as open_again:
            database: RecordDatabase = open_again()
            require(database.place, f"{self.where}: it does not say where it is ('place')")
            self._require_writable(database)
            key, other = _key(64), _key(128)
            require(not database.keys(), f"{self.where}: a new one has keys")
            require(not database.records(key), f"{self.where}: it has records of an unknown key")
            records = [_record((0, 1), 1e-3), _record((0, 2), None)]
            changed = database.add({key: records})
            require(changed == len(records), f"{self.where}: adding 2 records changed {changed}")
            if self.persistent:
                database.close()
                database.close()
                database = open_again()
            found = {one.measurement.config: one for one in database.records(key)}
            require(
                found == {one.measurement.config: one for one in records},
                f"{self.where}: it gives back other records than were added",
            )
            require(list(database.keys()) == [key], f"{self.where}: it has other keys than added")
            require(not database.records(other), f"{self.where}: it mixes up two keys")
            database.close()

    def test_order(self) -> None:
        """Adding is idempotent, and of two records the better one stays, whichever came first."""
        slow, fast = _record((0, 1), 2e-3), _record((0, 1), 1e-3)
        for records in ((fast, slow), (slow, fast)):
            with self.opened() as open_again:
                database: RecordDatabase = open_again()
                self._require_writable(database)
                for record in records:
                    database.add({_key(64): [record]})
                require(
                    list(database.records(_key(64))) == [fast],
                    f"{self.where}: of two records of a configuration not the one of the lower "
                    "rank stays",
                )
                again = database.add({_key(64): [fast]})
                require(again == 0, f"{self.where}: adding a record again changed {again}")
                database.close()

    def test_family(self) -> None:
        """``keys(like)`` gives the keys of one family, in an order that depends on them alone."""
        keys = [_key(64), _key(128), _key(64, target="other")]
        orders = []
        for order in (keys, keys[::-1]):
            with self.opened() as open_again:
                database: RecordDatabase = open_again()
                self._require_writable(database)
                for key in order:
                    database.add({key: [_record((0, 1), 1e-3)]})
                orders.append(list(database.keys()))
                found = {key.digest for key in database.keys(_key(32))}
                require(
                    found == {key.digest for key in keys[:2]},
                    f"{self.where}: keys(like) gives other keys than those of its family",
                )
                database.close()
        require(orders[0] == orders[1], f"{self.where}: its keys come in the order of their adding")

    def _require_writable(self, database: RecordDatabase) -> None:
        if not database.writable:
            database.close()
            raise unittest.SkipTest("nothing can be added to it")


def _key(size: int, *, target: str = "none") -> RecordKey:
    return RecordKey(
        operator="none",
        arguments={"size": size},
        target=target,
        space="conformance",
        fingerprint="0" * 16,
        conditions={"threads": 1},
    )


def _record(config: tuple[int, ...], seconds: float | None) -> Record:
    failure = None if seconds is not None else FailureKind.RUN_ERROR
    measurement = Measurement(
        config=config,
        seconds=() if seconds is None else (seconds,),
        failure=failure,
        message="" if seconds is not None else "as scripted",
    )
    return Record(measurement=measurement, knobs={"tile": config[1]}, measured_at=1.0)

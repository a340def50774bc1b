"""The contract of record databases, which keep measurements for later runs.

A record is data, so the worst effect of a wrong record is a slow kernel. Configurations are looked
up in the run's own design space, and every kernel is checked before it is delivered.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from chameleon_core._measurement import Measurement
from chameleon_core._task import Task


class RecordDatabase(ABC):
    """A database of measurements by ``Key``. One run uses one object, in one thread.

    Several runs may use one database at once. A method must raise a ``ChameleonError`` with a hint
    if the database cannot be read or written. The run then logs the error, and goes on without the
    database.

    Attributes:
        place: the address of the database, for messages.
        writable: whether records can be added to the database.
    """

    @attrs.frozen(kw_only=True, eq=False)
    class Key:
        """All facts that a task's measurements depend on, without machine, seed and search.

        Attributes:
            operator: the kind of the operator (``Task.operator``).
            arguments: the arguments of the operator (``Task.arguments``): shapes, layouts, dtypes.
            target: the canonical target (``Task.target``): the kind of processor and its CPU
                features.
            space: the name of the plugin that makes the design space.
            fingerprint: the fingerprint of the design space (``DesignSpace.fingerprint``). Knob
                indices mean the same values only in spaces with equal fingerprints.
            conditions: all other facts that times depend on, as JSON values. They are
                ``Runner.conditions`` (threads, compiler, state of the caches) and the version of
                the space's package.
        """

        operator: str
        arguments: Mapping[str, Any]
        target: str
        space: str
        fingerprint: str
        conditions: Mapping[str, Any]

        @classmethod
        def of(
            cls, task: Task, space: str, fingerprint: str, conditions: Mapping[str, Any]
        ) -> RecordDatabase.Key:
            """The key of a task's records.

            Args:
                task: the task.
                space: the name of the plugin that made its design space.
                fingerprint: the fingerprint of the design space.
                conditions: the conditions that the times depend on. The cold weights of a task in
                    a network are a further condition.
            """
            if task.cold_bytes:
                conditions = {**conditions, "weights": "cold"}
            return cls(
                operator=task.operator,
                arguments=task.arguments,
                target=task.target,
                space=space,
                fingerprint=fingerprint,
                conditions=conditions,
            )

        @cached_property
        def digest(self) -> str:
            """A digest of the whole key."""
            return _digest(self.to_json())

        @cached_property
        def family(self) -> str:
            """A digest of the key without the operator's arguments and the space's fingerprint.

            Fast configurations of one key may also be fast for other keys of the same family.
            """
            return _digest([self.operator, self.target, self.space, dict(self.conditions)])

        def __eq__(self, other: object) -> bool:
            return isinstance(other, RecordDatabase.Key) and self.digest == other.digest

        def __hash__(self) -> int:
            return hash(self.digest)

        def to_json(self) -> dict[str, Any]:
            """The key as JSON values. ``Key(**value)`` makes the key again."""
            return attrs.asdict(self, recurse=False)

    @attrs.frozen(kw_only=True)
    class Record:
        """One measurement of a configuration in a record database.

        Attributes:
            measurement: the measurement, which may be a failure.
            knobs: the knob values by name as JSON values, for tasks with another design space.
            measured_at: time of the measurement, in seconds since 1970.
            spent_seconds: the measurement's share of the wall-clock time of its task, search
                included, in seconds. It counts towards the budget of a run that reuses the record.
        """

        measurement: Measurement
        knobs: Mapping[str, Any]
        measured_at: float
        spent_seconds: float = 0.0

        @property
        def rank(self) -> tuple[Any, ...]:
            """A sort key for records of one configuration; a database keeps the lowest rank.

            Successes come before failures, and low times before high ones, because other work on a
            machine only makes kernels slower. Records with different contents have different ranks,
            so that databases can be merged in any order.
            """
            trial = self.measurement
            text = json.dumps([attrs.asdict(trial), dict(self.knobs), self.measured_at])
            return (not trial.ok, trial.cost, str(trial.failure or ""), text, self.spent_seconds)

    place: str
    writable: bool = True

    @abstractmethod
    def keys(self, like: RecordDatabase.Key | None = None) -> Sequence[RecordDatabase.Key]:
        """The keys that have records, in an order that depends only on the keys.

        Args:
            like: a key. Only keys of the same ``family`` are returned; all keys if None.
        """

    @abstractmethod
    def records(self, key: RecordDatabase.Key) -> Sequence[RecordDatabase.Record]:
        """The records of a key in any order, at most one per configuration.

        Args:
            key: the key.
        """

    @abstractmethod
    def add(self, records: Mapping[RecordDatabase.Key, Sequence[RecordDatabase.Record]]) -> int:
        """Add records to the database: all of them, or none if an error occurs.

        If the same records are added twice, the second addition changes nothing. The order of
        additions does not matter. If two records have the same key and configuration, the record
        with the lower ``rank`` stays.

        Args:
            records: the records of each key.

        Returns:
            The number of records that changed the database.
        """

    def close(self) -> None:  # noqa: B027 - optional hook
        """Close files and connections. A second call does nothing."""


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]

"""The contract of record databases, which keep measurements for later runs.

A record is data, and a wrong record can only make a run slow. Configurations are looked up in the
run's own design space, and every kernel is checked before it is delivered.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from chameleon_core.measurement import Measurement


@attrs.frozen(kw_only=True, eq=False)
class RecordKey:
    """All facts that a task's measurements depend on. Machine, seed and search are not among them.

    Attributes:
        operator: ``Task.operator``.
        arguments: ``Task.arguments``: shapes, layouts, dtypes.
        target: ``Task.target``, the canonical target: the kind of processor and its features.
        space: name of the space provider.
        fingerprint: ``DesignSpace.fingerprint``. Knob indices mean the same only if it is equal.
        conditions: further facts that times depend on, as JSON values: ``Runner.conditions``
            (threads, compiler, state of the caches) and the version of the space's package.
    """

    operator: str
    arguments: Mapping[str, Any]
    target: str
    space: str
    fingerprint: str
    conditions: Mapping[str, Any]

    @cached_property
    def digest(self) -> str:
        """A digest of the whole key."""
        return _digest(self.to_json())

    @cached_property
    def family(self) -> str:
        """The key without its shapes. Configurations may suit other keys of the same family."""
        return _digest([self.operator, self.target, self.space, dict(self.conditions)])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordKey) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def to_json(self) -> dict[str, Any]:
        """The key as JSON values; ``RecordKey(**value)`` reads them."""
        return attrs.asdict(self, recurse=False)


@attrs.frozen(kw_only=True)
class Record:
    """One measurement in a database.

    Attributes:
        measurement: the measurement, perhaps a failure.
        knobs: the knob values as JSON values, for tasks with another space.
        measured_at: time of the measurement, in seconds since 1970.
        spent_seconds: the measurement's share of its task's wall-clock time, search included. It
            counts towards the budget of a run that reuses the record.
    """

    measurement: Measurement
    knobs: Mapping[str, Any]
    measured_at: float
    spent_seconds: float = 0.0


class RecordDatabase(ABC):
    """A database of measurements by ``RecordKey``. One run uses one object, in one thread.

    Several runs may use one database at once. If it cannot be read or written, it raises a
    ``ChameleonError`` with a hint. The run shows it, and goes on without the database.

    Attributes:
        place: the database's address for messages.
        writable: whether records can be added.
    """

    place: str
    writable: bool = True

    @abstractmethod
    def keys(self, like: RecordKey | None = None) -> Sequence[RecordKey]:
        """The keys that have records, in an order that depends on the keys alone.

        Args:
            like: a key whose ``family`` alone is wanted; all keys if None.
        """

    @abstractmethod
    def records(self, key: RecordKey) -> Sequence[Record]:
        """The records of a key in any order, one per configuration; empty if there are none."""

    @abstractmethod
    def add(self, records: Mapping[RecordKey, Sequence[Record]]) -> int:
        """Add all of these records, or none of them.

        A second addition changes nothing, and the order of additions does not matter. If two
        records have the same key and configuration, the one with the lower ``rank`` stays.

        Returns:
            Number of records that changed the database.
        """

    def close(self) -> None:  # noqa: B027 - optional hook
        """Close files and connections. A second call does nothing."""


def rank(record: Record) -> tuple[Any, ...]:
    """A sort key for records of one configuration. The record with the lowest rank stays.

    Successes come before failures, and low times before high ones, because other work on a machine
    makes kernels slower, never faster. Records with different contents have different ranks, so
    databases can be merged in any order.
    """
    trial = record.measurement
    text = json.dumps([attrs.asdict(trial), dict(record.knobs), record.measured_at])
    return (not trial.ok, trial.cost, str(trial.failure or ""), text, record.spent_seconds)


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]

"""The contract of record databases: measurements that outlive their run, under what they depend on.

A record is data. Whoever wrote it, it can make a run slow at worst. Configurations are looked up in
the run's own design space, and every kernel is checked before it is delivered.
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
    """Everything that a task's measurements depend on: no machine, no seed, no search.

    Attributes:
        operator: ``Task.operator``.
        arguments: ``Task.arguments``: shapes, layouts, types.
        target: ``Task.target``, canonical: the processor's kind and its features.
        space: name of the space provider.
        fingerprint: ``DesignSpace.fingerprint``: indices mean the same only if it is the same.
        conditions: what else a time depends on, as JSON values: ``Runner.conditions`` (threads,
            compiler, state of the caches), and the version of what brings the space.
    """

    operator: str
    arguments: Mapping[str, Any]
    target: str
    space: str
    fingerprint: str
    conditions: Mapping[str, Any]

    @cached_property
    def digest(self) -> str:
        """Identity of the key: a digest of all of it."""
        return _digest(self.to_json())

    @cached_property
    def family(self) -> str:
        """The common part of keys whose configurations may suit each other: all but the shapes."""
        return _digest([self.operator, self.target, self.space, dict(self.conditions)])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RecordKey) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def to_json(self) -> dict[str, Any]:
        """The key as JSON values; ``RecordKey(**value)`` is its inverse."""
        return attrs.asdict(self, recurse=False)


@attrs.frozen(kw_only=True)
class Record:
    """One measurement in a database.

    Attributes:
        measurement: the outcome, a failure perhaps.
        knobs: the configuration decoded, as JSON values, for tasks whose spaces are not the same.
        measured_at: when, in seconds since 1970.
        spent_seconds: its share of the wall-clock that its task took, search included; counts
            towards the budget of a run that takes the record.
    """

    measurement: Measurement
    knobs: Mapping[str, Any]
    measured_at: float
    spent_seconds: float = 0.0


class RecordDatabase(ABC):
    """Measurements by what they depend on. One object is used by one run, from one thread.

    Several runs may use one database at once. A failure to read or write is a ``ChameleonError``
    with a hint; a run says so and goes on without the database.

    Attributes:
        place: where it is, for messages.
        writable: whether records can be added.
    """

    place: str
    writable: bool = True

    @abstractmethod
    def keys(self, like: RecordKey | None = None) -> Sequence[RecordKey]:
        """The keys with records, in an order that depends on them alone.

        Args:
            like: those of its ``family`` alone; all if None.
        """

    @abstractmethod
    def records(self, key: RecordKey) -> Sequence[Record]:
        """The records of a key, one for each configuration, in any order; empty if none is."""

    @abstractmethod
    def add(self, records: Mapping[RecordKey, Sequence[Record]]) -> int:
        """Add records, all together.

        Adding is idempotent, and the order in which several add makes no difference. If two records
        have one key and configuration, the one of the lower ``rank`` stays.

        Returns:
            How many changed the database.
        """

    def close(self) -> None:  # noqa: B027 - optional hook
        """Let go of files and connections; safe to call twice."""


def rank(record: Record) -> tuple[Any, ...]:
    """Which of several records of one configuration stays: the one of the lowest rank.

    Successes come before failures, then the lowest time: other work on a machine makes kernels seem
    slower, never faster. A total order of contents, so that databases can be merged in any order.
    """
    trial = record.measurement
    text = json.dumps([attrs.asdict(trial), dict(record.knobs), record.measured_at])
    return (not trial.ok, trial.cost, str(trial.failure or ""), text, record.spent_seconds)


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]

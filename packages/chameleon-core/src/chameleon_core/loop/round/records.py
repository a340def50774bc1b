"""What is on disk of one task, and how much of it the search has come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import structlog

from chameleon_core.loop.round.batch import Config, Origin
from chameleon_core.measurement import Measurement, failures_by_kind, most_frequent_failure
from chameleon_core.spending import Spending
from chameleon_core.store import RecordStore, StoredTask

log = structlog.get_logger()


class TaskRecords:
    """The measurements of a task, those of earlier processes among them.

    Args:
        store: the run's records.
        stored: the task's row in them.

    Attributes:
        stored: the task's row.
    """

    def __init__(self, store: RecordStore, stored: StoredTask) -> None:
        self.stored = stored
        self._store = store
        self._measured = {m.config: m for m in store.measurements(stored.id)}
        self._places = dict(zip(self._measured, store.places(stored.id), strict=True))
        self._origins = dict(zip(self._measured, store.origins(stored.id), strict=True))
        self._pending = dict(self._measured)
        self._best = min((m.cost for m in self._measured.values()), default=float("inf"))

    @property
    def measured(self) -> Mapping[Config, Measurement]:
        """Every measurement by its configuration, in order of arrival."""
        return self._measured

    @property
    def best(self) -> float:
        """The lowest cost in seconds; infinity where nothing has one."""
        return self._best

    @property
    def failed(self) -> dict[str, int]:
        """Failures by kind."""
        return failures_by_kind(self._measured.values())

    @property
    def failure(self) -> str | None:
        """The first failure of the most frequent kind, in words."""
        return most_frequent_failure(self._measured.values())

    @property
    def origins(self) -> dict[str, int]:
        """How many came from where, by ``Origin``; versions that did not record it do not count."""
        return dict(Counter(origin for origin in self._origins.values() if origin is not None))

    @property
    def recorded(self) -> list[Measurement]:
        """Those that the run did not measure but took from a record database, in their order."""
        return [m for config, m in self._measured.items() if self.is_recorded(config)]

    def is_recorded(self, config: Config | None) -> bool:
        """Whether the measurement of a configuration is another run's."""
        return config is not None and self.origin(config) == Origin.RECORD

    def origin(self, config: Config) -> str | None:
        """What put a configuration into its batch; None where nobody recorded it."""
        return self._origins.get(config)

    def add(
        self,
        measurement: Measurement,
        *,
        key: int,
        knobs: Mapping[str, Any],
        origin: str,
        score: float | None,
        spending: Spending,
    ) -> bool:
        """Commit a measurement, as ``RecordStore.add``.

        Returns:
            Whether it is faster than all before it.
        """
        config, row = measurement.config, self.stored.id
        self._places[config] = self._store.add(
            row, key, measurement, knobs=knobs, spending=spending, origin=origin, score=score
        )
        self._measured[config], self._origins[config] = measurement, origin
        improved = measurement.cost < self._best
        self._best = min(self._best, measurement.cost)
        return improved

    def set_spending(self, spending: Spending) -> None:
        """Commit the seconds that the task has taken so far."""
        self._store.set_spending(self.stored.id, spending)

    def last_place(self, configs: Iterable[Config]) -> int:
        """Where the last arrival of some configurations is among the arrivals of all tasks."""
        return max((self._places[one] for one in configs if one in self._places), default=0)

    def come_to(self, configs: Iterable[Config]) -> None:
        """Note that the search has proposed them, so that they are no leftovers."""
        for config in configs:
            self._pending.pop(config, None)

    def leftovers(self, expected: Collection[Config], *, ended: str | None) -> list[Measurement]:
        """Take the earlier measurements that the search did not propose, with a word in the log.

        Args:
            expected: what the search proposes at this moment, which is not left over.
            ended: why the task ended; None where it goes on, with other proposals than before.
        """
        left = [m for config, m in self._pending.items() if config not in expected]
        if not left:
            return left
        self.come_to([m.config for m in left])
        if ended is None:
            log.warning(
                "the search proposes other configurations than it did before; "
                "the earlier measurements are kept",
                task=self.stored.task.name,
                measurements=len(left),
            )
        else:
            log.warning(
                "more was measured before than this run goes through; all of it counts",
                task=self.stored.task.name,
                measurements=len(self._measured),
                ended=ended,
            )
        return left


def say_what_does_not_apply(stored: StoredTask, store: RecordStore) -> None:
    """Say that a task has records of another design space, which are not this one's.

    Args:
        stored: the task's row for its present space.
        store: the run's records.
    """
    count = sum(
        len(store.measurements(other.id))
        for other in store.tasks()
        if (other.task.key, other.space) == (stored.task.key, stored.space)
        and other.fingerprint != stored.fingerprint
    )
    if count:
        log.warning(
            "the design space of this operator is another than that of earlier measurements in "
            "this folder, as with another version of its plugin; they are kept and do not "
            "count, and the operator is tuned anew",
            task=stored.task.name,
            measurements=count,
        )

"""The objects that every step of a run uses, and sums over all processes of the run."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from chameleon_core.events import Event
from chameleon_core.loop.interruption import Interruption
from chameleon_core.loop.round.in_flight import CheckedRunner
from chameleon_core.loop.start.shared_records import SharedRecords
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.run_folder import RunFolder
from chameleon_core.stages import Disturbance, Frontend
from chameleon_core.store import RecordStore

DISTURBANCE = "disturbance"
"""Name of the fact in a run's store that says what disturbed its timing."""


class RunTotals:
    """Wall-clock and disturbance of a run, those of its earlier processes included.

    Args:
        store: the run's.
        runner: measures, and knows the time.
    """

    def __init__(self, store: RecordStore, runner: CheckedRunner) -> None:
        self._store = store
        self._runner = runner
        self._started = runner.now()
        self._seconds_before = float(store.fact("seconds") or 0.0)
        self._disturbance_before = disturbance_of(store)

    @property
    def seconds(self) -> float:
        """Wall-clock in seconds."""
        return self._seconds_before + self._runner.now() - self._started

    @property
    def disturbance(self) -> Disturbance:
        """How much timing was disturbed."""
        return self._disturbance_before + self._runner.disturbance()

    def keep(self) -> None:
        """Have them in the store, for the next process of the run."""
        self._store.set_fact("seconds", self.seconds)
        self._store.set_fact(DISTURBANCE, self.disturbance.to_json())


def disturbance_of(store: RecordStore) -> Disturbance:
    """How much timing was disturbed, as far as a run has kept it.

    Args:
        store: the run's.
    """
    facts = store.fact(DISTURBANCE)
    return Disturbance() if facts is None else Disturbance.from_json(facts)


@attrs.frozen(kw_only=True, eq=False)
class RunContext:
    """The objects that every step of a run uses, after the runner has started.

    Attributes:
        pipeline: the pipeline.
        frontend: the pipeline's frontend.
        target: the resolved target.
        batch_size: configurations per round.
        folder: the run folder.
        runner: the runner.
        records: the run's record databases.
        totals: sums over all processes.
        publish: sends an event to all listeners.
        interruption: the request to stop.
    """

    pipeline: ResolvedPipeline
    frontend: Frontend
    target: str
    batch_size: int
    folder: RunFolder
    runner: CheckedRunner
    records: SharedRecords
    totals: RunTotals
    publish: Callable[[Event], None]
    interruption: Interruption

    @property
    def store(self) -> RecordStore:
        """The run's records."""
        return self.folder.store

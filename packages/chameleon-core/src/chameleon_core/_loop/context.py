"""The objects that every step of a run uses, and sums of times over all processes of the run."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

import attrs

from chameleon_core._events import Event
from chameleon_core._loop.interruption import Interruption
from chameleon_core._loop.round.in_flight import CheckedRunner
from chameleon_core._loop.start.shared_records import SharedRecords
from chameleon_core._pipeline.schema import ResolvedPipeline
from chameleon_core._run_folder import RunFolder
from chameleon_core._stages.disturbance import Disturbance
from chameleon_core._stages.frontend import Frontend
from chameleon_core._store.records import RecordStore

DISTURBANCE = "disturbance"
"""Key under which a run's store keeps how much its timing was disturbed."""

_STEPS = "step_seconds"
"""Key under which a run's store keeps the wall-clock time of each step."""


class RunTotals:
    """Wall-clock time and disturbance of a run, summed over all its processes.

    Args:
        store: the run's record store, with the sums of earlier processes.
        runner: the runner of this process, which adds to the sums. Its clock gives the wall-clock
            time. Its disturbance says how much other programs slowed the timing.

    Attributes:
        uncompared: names of the tasks that were not compared because the time was over.
    """

    def __init__(self, store: RecordStore, runner: CheckedRunner) -> None:
        self._store = store
        self._runner = runner
        self._started = runner.now()
        self._seconds_before = float(store.fact("seconds") or 0.0)
        self.uncompared: list[str] = []
        self._steps = defaultdict[str, float](float, store.fact(_STEPS) or {})
        self._disturbance_before = disturbance_of(store)
        runner.resume(self._disturbance_before)

    @property
    def seconds(self) -> float:
        """Wall-clock time of the run in seconds."""
        return self._seconds_before + self._runner.now() - self._started

    @property
    def steps(self) -> Mapping[str, float]:
        """Wall-clock time of each step of the run in seconds, by its name."""
        return dict(self._steps)

    @contextlib.contextmanager
    def during(self, step: str) -> Iterator[None]:
        """Count the time of the context to a step.

        Args:
            step: the step's name.
        """
        started = self._runner.now()
        try:
            yield
        finally:
            self.move(self._runner.now() - started, step)

    def move(self, seconds: float, step: str, *, source: str | None = None) -> None:
        """Count seconds to a step, and no longer to another one.

        Args:
            seconds: the wall-clock time in seconds.
            step: the step's name.
            source: the name of the step to which they were counted, or None.
        """
        self._steps[step] += seconds
        if source is not None:
            self._steps[source] -= seconds

    @property
    def disturbance(self) -> Disturbance:
        """How much other work of the machine disturbed the run's timing."""
        return self._disturbance_before + self._runner.disturbance()

    def keep(self) -> None:
        """Write the run's wall-clock time, its steps and its disturbance into the store.

        They are sums over all processes of the run so far. If another process continues the run, it
        reads these sums and adds its own values.
        """
        self._store.set_fact("seconds", self.seconds)
        self._store.set_fact(_STEPS, self.steps)
        self._store.set_fact(DISTURBANCE, self.disturbance.to_json())


def disturbance_of(store: RecordStore) -> Disturbance:
    """How much other programs disturbed the timing of a run, as its store last recorded it.

    Args:
        store: the run's record store.
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
        batch_size: the number of configurations per round.
        folder: the run folder.
        runner: the runner.
        records: the record databases of other runs that this run uses.
        totals: the run's wall-clock time and disturbance, summed over all its processes.
        publish: a function that sends an event to all listeners.
        interruption: the user's request to stop the run, if any.
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
        """The run's record store."""
        return self.folder.store

"""Sums over all processes of a run."""

from __future__ import annotations

from chameleon_core.loop.round.measure import CheckedRunner
from chameleon_core.stages import Disturbance
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
    kept = store.fact(DISTURBANCE)
    return Disturbance() if kept is None else Disturbance.from_json(kept)

"""What a frontend chooses by measurement before there are tasks: once, and kept for good."""

from __future__ import annotations

import math
from typing import Any

from chameleon_core.errors import ConfigError
from chameleon_core.loop.assembly import spaces_of
from chameleon_core.loop.comparison import stage_ref
from chameleon_core.loop.measuring import Measuring, plain
from chameleon_core.loop.stages import guard_of
from chameleon_core.pipeline.schema import ResolvedPipeline, Scope, Subject
from chameleon_core.stages import Frontend, MeasureJob, Trials
from chameleon_core.store import RecordStore
from chameleon_core.task import Task

_SETTLED = "model"
"""Name of the fact in the run's store."""

_SECONDS = "settling_seconds"
"""Name of the fact that says how long choosing took."""

SHARE = 0.2
"""Of the wall-clock that all tasks share, what choosing between them may take."""


def settled(
    pipeline: ResolvedPipeline,
    frontend: Frontend,
    target: str,
    *,
    store: RecordStore,
    measuring: Measuring,
) -> dict[str, Any] | None:
    """Have a frontend settle what its tasks depend on, or recall what was settled before.

    Args:
        pipeline: the run's.
        frontend: its frontend.
        target: the resolved target.
        store: keeps the choice.
        measuring: does what has to be measured for it.

    Returns:
        The choice as JSON values, or None where there was nothing to choose.

    Raises:
        PluginError: the frontend breaks its contract.
        RunInterrupted: the run was asked to stop; nothing is settled.
    """
    kept = recalled(pipeline, frontend, store)
    if kept is not None:
        return kept
    guard = guard_of(pipeline.model)
    trials = _RunnerTrials(pipeline, target, measuring)
    with guard.call("settle what its tasks depend on"):
        found = frontend.settle(trials)
    store.set_fact(_SECONDS, trials.spent)
    if found is None:
        return None
    if not isinstance(found, dict):
        raise guard.broken(f"settled on a {type(found).__name__} instead of a mapping")
    store.set_fact(_SETTLED, found)
    return found


def settling_seconds(store: RecordStore) -> float:
    """Wall-clock in seconds of what was measured to settle on something; 0 where nothing was."""
    return float(store.fact(_SECONDS) or 0.0)


def recalled(pipeline: Subject, frontend: Frontend, store: RecordStore) -> dict[str, Any] | None:
    """Tell a frontend what was settled in a run folder.

    Args:
        pipeline: the run's.
        frontend: its frontend, newly made.
        store: the run's records.

    Returns:
        The choice, or None where none was made yet.
    """
    kept: dict[str, Any] | None = store.fact(_SETTLED)
    if kept is not None:
        with guard_of(pipeline.model).call("recall what was settled"):
            frontend.recall(kept)
    return kept


class _RunnerTrials(Trials):
    """Measurements by the run's runner; none of them is kept.

    Attributes:
        spent: wall-clock in seconds that they have taken.
    """

    def __init__(self, pipeline: ResolvedPipeline, target: str, measuring: Measuring) -> None:
        self.target = target
        self.live = measuring.live
        budget = pipeline.budget
        shared = budget.wall_time is not None and budget.scope is Scope.NETWORK
        self.seconds = SHARE * budget.wall_time if shared and budget.wall_time else math.inf
        self.spent = 0.0
        self._pipeline = pipeline
        self._measuring = measuring

    def best_seconds(
        self, task: Task, guesses: int, *, seconds_to_beat: float = float("inf")
    ) -> float | None:
        try:
            [space] = spaces_of(self._pipeline, [task])
        except ConfigError:
            return None
        configs = plain(space.first_guesses[:guesses].tolist())
        if not configs:
            return None
        job = MeasureJob(
            task=task,
            space=stage_ref(self._pipeline.space),
            configs=configs,
            best_seconds=seconds_to_beat,
        )
        started = self._measuring.runner.now()
        best = min(measurement.cost for measurement in self._measuring.measure(job))
        self.spent += self._measuring.runner.now() - started
        return best if math.isfinite(best) else None

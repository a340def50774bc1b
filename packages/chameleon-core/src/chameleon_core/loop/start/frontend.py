"""What a frontend is asked before it names its tasks: whether it can deliver, and what it chooses.

It chooses by measurement, once; the choice is kept for good.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from chameleon_core.errors import ConfigError
from chameleon_core.events import CheckFinished, CheckStarted
from chameleon_core.events.records import Event
from chameleon_core.loop.plugin_contract import contract_of
from chameleon_core.loop.round.batch import tuples
from chameleon_core.loop.round.measure import CheckedRunner
from chameleon_core.loop.start.shared_records import SharedRecords
from chameleon_core.loop.start.tasks import spaces_of
from chameleon_core.pipeline.schema import ResolvedPipeline, Scope, Subject
from chameleon_core.stages import Frontend, MeasureJob, StageRef, Trials
from chameleon_core.store import RecordStore
from chameleon_core.task import Task

_CHECKED = "check"
_CHOICE = "model"
"""Names of facts in the run's store."""

_SECONDS = "settling_seconds"
"""Name of the fact that says how long choosing took."""

SHARE = 0.2
"""Of the wall-clock that all tasks share, what choosing between them may take."""


def check(
    pipeline: ResolvedPipeline,
    frontend: Frontend,
    target: str,
    *,
    folder: str,
    threads: int,
    store: RecordStore,
    publish: Callable[[Event], None],
) -> dict[str, Any] | None:
    """Have a frontend refuse what it could not deliver at the run's end.

    Args:
        pipeline: the run's.
        frontend: its frontend.
        target: the resolved target.
        folder: the run folder.
        threads: that kernels are measured with.
        store: keeps what was found.
        publish: tells an event.

    Returns:
        What the frontend found, or None where there was nothing to check.

    Raises:
        ChameleonError: it cannot be delivered.
        PluginError: the frontend breaks its contract.
    """
    if getattr(type(frontend), "check", Frontend.check) is Frontend.check:
        return None
    contract = contract_of(pipeline.model)
    earlier: dict[str, Any] | None = store.fact(_CHECKED)
    if earlier is None:
        publish(CheckStarted(folder=folder))
    started = time.perf_counter()
    with contract.call("check what it is to deliver"):
        found = frontend.check(target, threads, earlier)
    if found is None:
        return None
    if not isinstance(found, dict):
        raise contract.broken(f"found a {type(found).__name__} instead of a mapping")
    if earlier is None:
        store.set_fact(_CHECKED, found)
        publish(CheckFinished(seconds=time.perf_counter() - started, found=found))
    return found


def was_checked(store: RecordStore) -> bool:
    """Whether a run has a network to deliver that was found to be deliverable.

    Args:
        store: the run's records.
    """
    return store.fact(_CHECKED) is not None


def choice_of(
    pipeline: ResolvedPipeline,
    frontend: Frontend,
    target: str,
    *,
    store: RecordStore,
    runner: CheckedRunner,
    records: SharedRecords,
) -> dict[str, Any] | None:
    """Have a frontend choose what its tasks depend on, or recall what it chose before.

    Args:
        pipeline: the run's.
        frontend: its frontend.
        target: the resolved target.
        store: keeps the choice.
        runner: measures what has to be measured for it.
        records: know what others have measured, and keep what is measured now.

    Returns:
        The choice as JSON values, or None where there was nothing to choose.

    Raises:
        PluginError: the frontend breaks its contract.
        RunInterrupted: the run was asked to stop; nothing is chosen.
    """
    kept = recalled(pipeline, frontend, store)
    if kept is not None:
        return kept
    contract = contract_of(pipeline.model)
    trials = _MeasuredTrials(pipeline, target, runner, records)
    with contract.call("settle what its tasks depend on"):
        found = frontend.decide(trials)
    store.set_fact(_SECONDS, trials.spent)
    if found is None:
        return None
    if not isinstance(found, dict):
        raise contract.broken(f"settled on a {type(found).__name__} instead of a mapping")
    store.set_fact(_CHOICE, found)
    return found


def choice_seconds(store: RecordStore) -> float:
    """Wall-clock in seconds of what was measured for the choice; 0 where nothing was."""
    return float(store.fact(_SECONDS) or 0.0)


def recalled(pipeline: Subject, frontend: Frontend, store: RecordStore) -> dict[str, Any] | None:
    """Tell a frontend what it chose in a run folder.

    Args:
        pipeline: the run's.
        frontend: its frontend, newly made.
        store: the run's records.

    Returns:
        The choice, or None where none was made yet.
    """
    kept: dict[str, Any] | None = store.fact(_CHOICE)
    if kept is not None:
        with contract_of(pipeline.model).call("recall what was settled"):
            frontend.restore(kept)
    return kept


class _MeasuredTrials(Trials):
    """Measurements by the run's runner; the run keeps none of them.

    Attributes:
        spent: wall-clock in seconds that they have taken.
    """

    def __init__(
        self,
        pipeline: ResolvedPipeline,
        target: str,
        runner: CheckedRunner,
        records: SharedRecords,
    ) -> None:
        self._records = records
        self.target = target
        self.measures_hardware = runner.measures_hardware
        budget = pipeline.budget
        self._measures = budget.measurements != 0
        shared = budget.wall_time is not None and budget.scope is Scope.NETWORK
        self.seconds = SHARE * budget.wall_time if shared and budget.wall_time else math.inf
        self.spent = 0.0
        self._pipeline = pipeline
        self._runner = runner

    def best_seconds(
        self, task: Task, guesses: int, *, seconds_to_beat: float = float("inf")
    ) -> float | None:
        try:
            [space] = spaces_of(self._pipeline, [task], among=True)
        except ConfigError:
            return None
        configs = tuples(space.first_guesses[:guesses])
        if not configs:
            return None
        records = (record.measurement for record in self._records.known(task, space))
        known = {one.config: one.cost for one in records}
        best = min((known[one] for one in configs if one in known), default=math.inf)
        missing = [one for one in configs if one not in known]
        if missing and self._measures:
            job = MeasureJob(
                task=task,
                space=StageRef.of(self._pipeline.space),
                configs=missing,
                best_seconds=min(best, seconds_to_beat),
            )
            started = self._runner.now()
            measured = self._runner.measure(job)
            self.spent += self._runner.now() - started
            self._records.note(task, space, measured)
            best = min(best, *(measurement.cost for measurement in measured))
        return best if math.isfinite(best) else None

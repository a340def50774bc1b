"""Two questions to a frontend before it names its tasks: can it deliver, and what does it choose?

The frontend chooses by measurement once, and the run keeps the choice.
"""

from __future__ import annotations

import math
import time
from typing import Any

import structlog

from chameleon_core.errors import ConfigError
from chameleon_core.events import CheckFinished, CheckStarted
from chameleon_core.loop.context import RunContext
from chameleon_core.loop.plugin_contract import contract_of
from chameleon_core.loop.round.batch import tuples
from chameleon_core.loop.start.tasks import spaces_of
from chameleon_core.pipeline.schema import Scope, Subject
from chameleon_core.space import DesignSpace
from chameleon_core.stages import Frontend, MeasureJob, StageRef, Trials
from chameleon_core.store import RecordStore
from chameleon_core.task import Task
from chameleon_core.words import in_seconds

log = structlog.get_logger()

_CHECKED = "check"
_CHOICE = "model"
"""Names of facts in the run's store."""

_SECONDS = "settling_seconds"
"""Name of the fact that says how long choosing took."""

SHARE = 0.2
"""Of the wall-clock that all tasks share, what choosing between them may take."""


def check(run: RunContext) -> None:
    """Have a frontend refuse what it could not deliver at the run's end.

    Raises:
        ChameleonError: it cannot be delivered.
        PluginError: the frontend breaks its contract.
    """
    frontend, contract = run.frontend, contract_of(run.pipeline.model)
    if getattr(type(frontend), "check", Frontend.check) is Frontend.check:
        return
    earlier: dict[str, Any] | None = run.store.fact(_CHECKED)
    if earlier is None:
        run.publish(CheckStarted(folder=str(run.folder.path)))
    started = time.perf_counter()
    with contract.call("check what it is to deliver"):
        report = frontend.check(run.target, run.runner.threads, earlier)
    if report is None:
        return
    if not isinstance(report, dict):
        raise contract.broken(f"found a {type(report).__name__} instead of a mapping")
    if earlier is None:
        run.store.set_fact(_CHECKED, report)
        run.publish(CheckFinished(seconds=time.perf_counter() - started, found=report))


def was_checked(store: RecordStore) -> bool:
    """Whether a run has a network to deliver that was found to be deliverable.

    Args:
        store: the run's records.
    """
    return store.fact(_CHECKED) is not None


def say_if_slower(store: RecordStore, seconds: float) -> None:
    """Warn if what is known of a network's operators makes it slower than its framework.

    Args:
        store: the run's records.
        seconds: of all operators in one inference.
    """
    report: dict[str, Any] = store.fact(_CHECKED) or {}
    other = report.get("reference_seconds")
    if other is not None and seconds > other:
        log.warning(
            "with first guesses the network's operators alone take longer than its framework does; "
            "the rest of the budget may change that",
            operators=in_seconds(seconds),
            framework=f"{report['reference']}: {in_seconds(other)}",
        )


def choice_of(run: RunContext) -> dict[str, Any] | None:
    """Have a frontend choose what its tasks depend on, or recall what it chose before.

    Returns:
        The choice as JSON values, or None where there was nothing to choose.

    Raises:
        PluginError: the frontend breaks its contract.
        RunInterrupted: the run was asked to stop; nothing is chosen.
    """
    stored = recalled(run.pipeline, run.frontend, run.store)
    if stored is not None:
        return stored
    contract = contract_of(run.pipeline.model)
    trials = _MeasuredTrials(run)
    with contract.call("settle what its tasks depend on"):
        choice = run.frontend.decide(trials)
    run.store.set_fact(_SECONDS, trials.spent)
    if choice is None:
        return None
    if not isinstance(choice, dict):
        raise contract.broken(f"settled on a {type(choice).__name__} instead of a mapping")
    run.store.set_fact(_CHOICE, choice)
    return choice


def forget_choice(store: RecordStore) -> None:
    """Let the frontend choose again.

    Args:
        store: the run's records.
    """
    store.set_fact(_CHOICE, None)


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
    choice: dict[str, Any] | None = store.fact(_CHOICE)
    if choice is not None:
        with contract_of(pipeline.model).call("recall what was settled"):
            frontend.restore(choice)
    return choice


class _MeasuredTrials(Trials):
    """Measurements by the run's runner; the run keeps none of them.

    Attributes:
        spent: wall-clock in seconds that they have taken.
    """

    def __init__(self, run: RunContext) -> None:
        budget = run.pipeline.budget
        shared = budget.wall_time is not None and budget.scope is Scope.NETWORK
        self.target = run.target
        self.measures_hardware = run.runner.measures_hardware
        self.seconds = SHARE * budget.wall_time if shared and budget.wall_time else math.inf
        self.spent = 0.0
        self._measures = budget.measurements != 0
        self._run = run

    def best_seconds(
        self, task: Task, guesses: int, *, seconds_to_beat: float = float("inf")
    ) -> float | None:
        space = self._space(task)
        configs = () if space is None else tuples(space.first_guesses[:guesses])
        if space is None or not configs:
            return None
        records = (record.measurement for record in self._run.records.known(task, space))
        known = {record.config: record.cost for record in records}
        best = min((known[config] for config in configs if config in known), default=math.inf)
        missing = [config for config in configs if config not in known]
        if missing and self._measures:
            job = MeasureJob(
                task=task,
                space=StageRef.of(self._run.pipeline.space),
                configs=missing,
                best_seconds=min(best, seconds_to_beat),
            )
            started = self._run.runner.now()
            measured = self._run.runner.measure(job)
            self.spent += self._run.runner.now() - started
            self._run.records.note(task, space, measured)
            best = min(best, *(measurement.cost for measurement in measured))
        return best if math.isfinite(best) else None

    def guessed_cost(self, task: Task) -> float | None:
        space = self._space(task)
        if space is None or space.guessed_cost is None or not len(space.first_guesses):
            return None
        return float(space.guessed_cost(space.values(space.first_guesses[:1]))[0])

    def _space(self, task: Task) -> DesignSpace | None:
        """The design space of a task, if it has one."""
        try:
            [space] = spaces_of(self._run.pipeline, [task], among=True)
        except ConfigError:
            return None
        return space

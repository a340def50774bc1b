"""Calls a frontend before it lists its tasks: for a check of the model, and for a choice.

The check finds out whether the frontend can compile and deliver the model at the end of the run.
The choice is, for example, the layout of images in a network. The frontend chooses once, by
measurements, and the run folder keeps the choice.
"""

from __future__ import annotations

import math
import time
from typing import Any

import structlog

from chameleon_core._errors import ConfigError
from chameleon_core._events import CheckFinished, CheckStarted
from chameleon_core._loop.context import RunContext
from chameleon_core._loop.plugin_contract import contract_of
from chameleon_core._loop.round.batch import tuples
from chameleon_core._loop.start.tasks import TaskSource
from chameleon_core._pipeline.schema import ModelChoice, Scope
from chameleon_core._space.design import DesignSpace
from chameleon_core._stages.frontend import Frontend
from chameleon_core._stages.jobs import MeasureJob, StageRef
from chameleon_core._store.records import RecordStore
from chameleon_core._task import Task
from chameleon_core._words import in_seconds

log = structlog.get_logger()

_CHECKED = "check"
_CHOICE = "model"
"""Keys under which the run's store keeps the check's answer and the frontend's choice."""

_SECONDS = "settling_seconds"
"""Key under which the run's store keeps the seconds that choosing took."""

SHARE = 0.2
"""Share of the wall-clock time of all tasks that the frontend's choice may take."""


def check(run: RunContext) -> None:
    """Let the frontend fail now, before any tuning, if it could not deliver at the end.

    Args:
        run: the run.

    Raises:
        ChameleonError: the frontend cannot deliver the model.
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
    """Whether the run's model is a network that passed the check before tuning.

    Args:
        store: the run's record store.
    """
    return store.fact(_CHECKED) is not None


def say_if_slower(store: RecordStore, seconds: float) -> None:
    """Warn if untuned kernels (first guesses) make a network slower than in its framework.

    Args:
        store: the run's record store.
        seconds: the time of all operators in one inference with the first guesses, in seconds.
    """
    report: dict[str, Any] = store.fact(_CHECKED) or {}
    other = report.get("reference_seconds")
    if other is not None and seconds > other:
        log.warning(
            "first_guesses_slower_than_framework",
            reason="the operators alone take longer; the rest of the budget may change that",
            operators=in_seconds(seconds),
            framework=f"{report['reference']}: {in_seconds(other)}",
        )


def choice_of(run: RunContext) -> dict[str, Any] | None:
    """Let the frontend make the choice that its tasks depend on, or restore its earlier choice.

    A choice is, for example, the layout of the images in a network.

    Args:
        run: the run.

    Returns:
        The choice as JSON values, or None if there was nothing to choose.

    Raises:
        PluginError: the frontend breaks its contract.
        RunInterrupted: the user asked the run to stop; no choice is stored.
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
    """Delete the frontend's stored choice, such as a layout, so that the frontend chooses again.

    Args:
        store: the run's record store.
    """
    store.set_fact(_CHOICE, None)


def choice_seconds(store: RecordStore) -> float:
    """Wall-clock time in seconds of the measurements on which a frontend based its choice.

    The value is 0 if the frontend measured nothing.

    Args:
        store: the run's record store.
    """
    return float(store.fact(_SECONDS) or 0.0)


def recalled(
    pipeline: ModelChoice, frontend: Frontend, store: RecordStore
) -> dict[str, Any] | None:
    """Read a frontend's choice, such as a layout, from a run's store and pass it to the frontend.

    Args:
        pipeline: the pipeline of the run.
        frontend: a new frontend of the pipeline.
        store: the run's record store.

    Returns:
        The choice, or None if no choice was made yet.
    """
    choice: dict[str, Any] | None = store.fact(_CHOICE)
    if choice is not None:
        with contract_of(pipeline.model).call("recall what was settled"):
            frontend.restore(choice)
    return choice


class _MeasuredTrials(Frontend.Trials):
    """Measurements for the frontend's choice; they do not count as measurements of the run's tasks.

    Attributes:
        spent: the wall-clock time in seconds of these measurements so far.
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
        return None if space is None else space.guess

    def _space(self, task: Task) -> DesignSpace | None:
        """The design space of a task, or None if it has none."""
        try:
            [space] = TaskSource(self._run.pipeline).spaces([task], among=True)
        except ConfigError:
            return None
        return space

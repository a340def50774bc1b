"""Suites of the stages that search, and of the schedulers that choose among tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from chameleon_core.schedulers import Scheduler, SchedulerContext, TaskState
from chameleon_core.task import Task

from chameleon_testing.conformance import (
    check_cost_model,
    check_explorer,
    check_sampler,
    check_synthesizer,
)
from chameleon_testing.conformance_cases import SEED
from chameleon_testing.generators import global_generators_kept
from chameleon_testing.sentences import require
from chameleon_testing.suites.base import StageSuite


class ExplorerSuite(StageSuite):
    """Checks of an explorer.

    Attributes:
        draws: whether it draws random numbers; False for one that is the same for every seed.
    """

    kind = "explorers"
    draws: ClassVar[bool] = True

    def test_proposals(self) -> None:
        """It proposes legal, distinct, new configurations, best first, from one seed alike."""
        check_explorer(self.make, draws=self.draws)


class CostModelSuite(StageSuite):
    """Checks of a cost model."""

    kind = "cost_models"

    def test_predictions(self) -> None:
        """It learns from measurements, failures among them, and scores each row by itself."""
        check_cost_model(self.make)


class SamplerSuite(StageSuite):
    """Checks of a sampler."""

    kind = "samplers"

    def test_choices(self) -> None:
        """It chooses rows to measure, from one seed alike, out of many, few or no candidates."""
        check_sampler(self.make)


class SynthesizerSuite(StageSuite):
    """Checks of a synthesizer."""

    kind = "synthesizers"

    def test_batches(self) -> None:
        """It mends batches: legal, distinct, new configurations, from one seed alike."""
        check_synthesizer(self.make)


_BATCH = 8
_ROUNDS = 5
"""Batches after which a task is done."""

_COSTS = (1e-3, 5e-4, 2e-3)
"""First cost of each task in seconds; each batch saves an eighth."""


class SchedulerSuite(StageSuite):
    """Checks of a scheduler."""

    kind = "schedulers"

    def test_choices(self) -> None:
        """It names a task that waits until none does, the same from one seed."""
        for at_once in (1, 2):
            where = f"{self.where}, {at_once} tasks at once"
            with global_generators_kept(where):
                once, again = (
                    _run(self.make, where, tasks=len(_COSTS), at_once=at_once) for _ in range(2)
                )
            require(once == again, f"{where}: two runs of one seed differ")
            require(once, f"{where}: it ends the run before any task had a batch")

    def test_one_task(self) -> None:
        """It can schedule a run of one task, and one whose tasks all fail."""
        require(_run(self.make, self.where, tasks=1), f"{self.where}: one task gets no batch")
        failing = _run(self.make, self.where, tasks=2, failing=True)
        require(failing, f"{self.where}: tasks that fail get no batch at all")

    def test_end(self) -> None:
        """It names no task where all are done."""
        tasks = _tasks(2)
        states = [_state(task, _ROUNDS, [1e-3] * _ROUNDS, done=True) for task in tasks]
        chosen = self.make(_context(tasks)).next_task(states)
        require(chosen is None, f"{self.where}: it names task {chosen} where all tasks are done")


def _tasks(count: int) -> list[Task]:
    return [
        Task(name=f"op{i}", operator="none", arguments={"i": i}, target="none", flop=1e9)
        for i in range(count)
    ]


def _context(tasks: list[Task]) -> SchedulerContext:
    return SchedulerContext(tasks=tasks, rng=np.random.default_rng(SEED), batch_size=_BATCH)


def _state(
    task: Task, rounds: int, history: list[float], *, done: bool = False, in_flight: bool = False
) -> TaskState:
    return TaskState(
        task=task,
        rounds=rounds,
        measured=rounds * _BATCH,
        history=tuple(history),
        done=done,
        in_flight=in_flight,
    )


def _run(
    make: Callable[[SchedulerContext], Scheduler],
    where: str,
    *,
    tasks: int,
    at_once: int = 1,
    failing: bool = False,
) -> list[int]:
    """Which tasks got a batch, in order; the batch that was begun first ends first."""
    known = _tasks(tasks)
    scheduler = make(_context(known))
    rounds, histories = [0] * tasks, [list[float]() for _ in known]
    flying: list[int] = []
    order: list[int] = []
    for _ in range(2 * tasks * _ROUNDS + 1):
        states = [
            _state(
                task,
                rounds[i],
                histories[i],
                done=rounds[i] >= _ROUNDS,
                in_flight=i in flying,
            )
            for i, task in enumerate(known)
        ]
        chosen = scheduler.next_task(states) if len(flying) < at_once else None
        if chosen is not None and chosen not in flying:
            require(
                isinstance(chosen, int | np.integer) and 0 <= chosen < tasks,
                f"{where}: it names {chosen!r}, which is no task's index",
            )
            require(states[chosen].waiting, f"{where}: it names task {chosen}, which is done")
            flying.append(chosen)
            order.append(int(chosen))
        elif flying:
            ended = flying.pop(0)
            cost = np.inf if failing else _COSTS[ended] * 0.875 ** rounds[ended]
            rounds[ended] += 1
            histories[ended].append(float(cost))
        else:
            return order
    require(condition=False, sentence=f"{where}: it goes on when all tasks are done")
    return order

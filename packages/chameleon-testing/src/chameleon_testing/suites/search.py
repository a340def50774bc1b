"""Suites of the search stages, and of schedulers, which choose among tasks."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from chameleon_core.schedulers import SchedulerContext, TaskState
from chameleon_core.task import Task

from chameleon_testing import conformance as checks
from chameleon_testing.generators import SEED, trial
from chameleon_testing.suites.base import StageSuite


class ExplorerSuite(StageSuite):
    """Checks of an explorer.

    Attributes:
        draws: whether the explorer draws random numbers. False for an explorer whose proposals are
            the same for every seed.
    """

    kind = "explorers"
    draws: ClassVar[bool] = True

    def test_proposals(self) -> None:
        """The explorer proposes legal, distinct, unvisited configurations, the same for a seed."""
        checks.check_explorer(self.make, draws=self.draws)


class CostModelSuite(StageSuite):
    """Checks of a cost model."""

    kind = "cost_models"

    def test_predictions(self) -> None:
        """The model learns from measurements and failures, and scores each row separately."""
        checks.check_cost_model(self.make)


class SamplerSuite(StageSuite):
    """Checks of a sampler."""

    kind = "samplers"

    def test_choices(self) -> None:
        """The sampler chooses rows from many, few or no candidates, the same for a seed."""
        checks.check_sampler(self.make)


class SynthesizerSuite(StageSuite):
    """Checks of a synthesizer."""

    kind = "synthesizers"

    def test_batches(self) -> None:
        """The synthesizer returns legal, distinct, unvisited rows, the same for a seed."""
        checks.check_synthesizer(self.make)


_BATCH = 8
_ROUNDS = 5
"""Number of batches after which a task is done."""

_COSTS = (1e-3, 5e-4, 2e-3)
"""Cost of each task after its first batch, in seconds; each further batch saves an eighth."""


class SchedulerSuite(StageSuite):
    """Checks of a scheduler."""

    kind = "schedulers"

    def test_choices(self) -> None:
        """The scheduler names waiting tasks until none waits, in the same order for a seed."""
        for at_once in (1, 2):
            with trial(f"{self.where}, {at_once} tasks at once"):
                once, again = (self._run(_COSTS, at_once) for _ in range(2))
                assert once == again, "two runs of one seed differ"
                assert once, "it ends the run before any task had a batch"

    def test_one_task(self) -> None:
        """The scheduler can schedule a run of one task, and a run whose tasks all fail."""
        with trial(self.where):
            assert self._run(_COSTS[:1]), "one task gets no batch"
            assert self._run((np.inf, np.inf)), "tasks that fail get no batch at all"

    def test_end(self) -> None:
        """The scheduler names no task if all tasks are done."""
        states = _states([[1e-3] * _ROUNDS] * 2)
        chosen = self.make(_context(states)).next_task(states)
        assert chosen is None, f"{self.where}: it names task {chosen}, but all are done"

    def _run(self, costs: tuple[float, ...], at_once: int = 1) -> list[int]:
        """The tasks that got a batch, in order. Batches end in the order in which they began."""
        histories: list[list[float]] = [[] for _ in costs]
        scheduler = self.make(_context(_states(histories)))
        flying: list[int] = []
        order: list[int] = []
        for _ in range(2 * len(costs) * _ROUNDS + 1):
            states = _states(histories, flying)
            chosen = scheduler.next_task(states) if len(flying) < at_once else None
            if chosen is not None and chosen not in flying:
                index = isinstance(chosen, int | np.integer) and 0 <= chosen < len(costs)
                assert index, f"it names {chosen!r}, which is no task's index"
                assert states[chosen].waiting, f"it names task {chosen}, which is done"
                flying.append(chosen)
                order.append(int(chosen))
            elif flying:
                ended = flying.pop(0)
                histories[ended].append(costs[ended] * 0.875 ** len(histories[ended]))
            else:
                return order
        raise AssertionError("it goes on when all tasks are done")


def _states(histories: list[list[float]], flying: list[int] | None = None) -> list[TaskState]:
    """The states of tasks with these costs after each batch. ``flying`` lists tasks in flight."""
    return [
        TaskState(
            task=Task(name=f"op{i}", operator="", arguments={"i": i}, target="", flop=1e9),
            rounds=len(history),
            measured=len(history) * _BATCH,
            history=tuple(history),
            done=len(history) >= _ROUNDS,
            in_flight=i in (flying or ()),
        )
        for i, history in enumerate(histories)
    ]


def _context(states: list[TaskState]) -> SchedulerContext:
    tasks, rng = [state.task for state in states], np.random.default_rng(SEED)
    return SchedulerContext(tasks=tasks, rng=rng, batch_size=_BATCH)

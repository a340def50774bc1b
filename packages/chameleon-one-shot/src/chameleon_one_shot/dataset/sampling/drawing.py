"""Draws tasks that can be measured: operators accept them, spaces have them, they end soon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.errors import ConfigError
from chameleon_core.loop.round.stages import generator
from chameleon_core.pipeline.read_options import read_options
from chameleon_core.plugins import Registry
from chameleon_core.task import Task

from chameleon_one_shot.dataset.records import DatasetError, canonical
from chameleon_one_shot.dataset.sampling.distribution import Observed, TaskDistribution
from chameleon_one_shot.dataset.sampling.hold_out import HeldOut

_TRIES = 500
"""Draws of one task that are refused at most."""


@attrs.frozen(kw_only=True, eq=False)
class TaskSampler:
    """Draws distinct tasks.

    Attributes:
        observed: tasks of the networks that are learnt from.
        held_out: what may not be drawn.
        target: canonical, of the tasks.
        most_flop: of one evaluation of a task.
        seed: of everything drawn.
        registry: knows the operators.
        has_space: whether there is a design space for a task.
    """

    observed: Sequence[Observed]
    held_out: HeldOut
    target: str
    most_flop: float
    seed: int
    registry: Registry
    has_space: Callable[[Task], bool]

    def drawn(self, count: int, known: Sequence[Task] = ()) -> list[Task]:
        """The first tasks of a sequence that the seed decides, whatever ``count`` is.

        Args:
            count: how many.
            known: the first of them, drawn before.

        Raises:
            DatasetError: there are not as many, or nothing to learn them from.
        """
        if not self.observed:
            raise DatasetError("the networks have no operator to tune", hint="Name some that have.")
        distribution = TaskDistribution(self.observed)
        # Of operators that only networks are made of, arguments cannot be made up.
        whole = {
            (one.task.operator, canonical(dict(one.task.arguments))): one.task
            for one in self.observed
        }
        tasks = list(known[:count])
        keys = {task.key for task in tasks}
        for place in range(len(tasks), count):
            rng = generator(self.seed, "tasks", str(place))
            task = self._one(distribution, whole, keys, rng)
            if task is None:
                raise DatasetError(
                    f"only {len(tasks)} tasks of {count} could be drawn from these networks",
                    hint="Ask for fewer tasks, name more networks, or raise most_gflop.",
                )
            tasks.append(task)
            keys.add(task.key)
        return tasks

    def _one(
        self,
        distribution: TaskDistribution,
        whole: dict[tuple[str, str], Task],
        keys: set[str],
        rng: np.random.Generator,
    ) -> Task | None:
        for _ in range(_TRIES):
            operator, arguments = distribution.draw(rng)
            if self.held_out.covers(operator, arguments):
                continue
            task = self._task(operator, arguments, whole)
            if task is None or task.key in keys or task.flop > self.most_flop:
                continue
            # The operator may have written them otherwise.
            if not self.held_out.covers(operator, task.arguments) and self.has_space(task):
                return task
        return None

    def _task(
        self, operator: str, arguments: dict[str, Any], whole: dict[tuple[str, str], Task]
    ) -> Task | None:
        """The task, named by its key; None where there is no such operator."""
        record = self.registry.record("operators", operator)
        if record.arguments is None:
            found = whole.get((operator, canonical(arguments)))
        else:
            try:
                made = read_options(arguments, record.arguments, f"operator '{operator}'")
                found = made.task(operator, self.target)
            except (ConfigError, ValueError, ArithmeticError):
                return None
        return None if found is None else named_by_key(found)


def named_by_key(task: Task) -> Task:
    """A task under the name that only it has, as it would occur once in a network."""
    name = f"{task.operator} {task.key[:12]}"
    return attrs.evolve(task, name=name, weight=1, alternative_of="")

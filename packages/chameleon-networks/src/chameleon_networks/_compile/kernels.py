"""Makes the tuned kernel of a fusion group: its function, and its packed constants."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.plugin_api import (
    Delivery,
    InvalidConfigurationError,
    SpaceProvider,
    Task,
    fall_back,
)
from chameleon_tvm.api import (
    COMPUTE,
    KIND,
    OperatorSpec,
    Program,
    TVMBuilder,
    TypedSpec,
    plan_of,
    tirx,
)
from numpy.typing import NDArray

from chameleon_networks._compile.loop_tasks import TunedLoops
from chameleon_networks._graph.fusion_groups import FusionGroup, candidate_specs

log = structlog.get_logger()

Configs = tuple[tuple[int, ...], ...]

_ROUNDED_COST = 2.0
"""Time of kernels of split products over their estimate, if direct kernels take what is estimated.
This was measured for the convolutions of ResNet-18 on AMX."""


def _with_other_output_dtypes(spec: OperatorSpec) -> Iterator[OperatorSpec]:
    """Yield the same operator with each other dtype that its output may have."""
    if isinstance(spec, TypedSpec):
        for kind in COMPUTE[spec.dtype].outputs:
            if kind != spec.output_dtype:
                yield attrs.evolve(spec, output_dtype=kind)


@attrs.frozen(kw_only=True, eq=False)
class OperatorKernel:
    """The function that computes one fusion group, and its arguments.

    Attributes:
        task: The name of the task that the function was tuned as.
        function: The function. Its parameters are the operator's inputs and its packed constants,
            in the order of ``arguments``, and then the output.
        arguments: One value for each parameter but the output: a packed constant, or None for an
            input.
        plain_loops: Whether the function consists of loops over arrays without TVM's blocks. Such a
            function compiles faster.
    """

    task: str
    function: tirx.PrimFunc
    arguments: tuple[NDArray[Any] | None, ...]
    plain_loops: bool


@attrs.define(eq=False)
class Kernels:
    """The winners (fastest configurations) of a run, as kernels of a network's fusion groups.

    Attributes:
        winners: The best configuration of each task that has a kernel, by ``Task.key``.
    """

    winners: Mapping[str, Delivery.Winner]
    _space: SpaceProvider
    _target: str
    _builders: dict[str, TVMBuilder | None] = attrs.field(factory=dict)

    def task_of(self, fusion: FusionGroup) -> Task:
        """The task of a fusion group that has a winner, of 8-bit or 7-bit weights, or its own."""
        tasks = [spec.task("chain", self._target) for spec in candidate_specs(fusion, self._target)]
        known = (self.winners.get(task.key) for task in tasks)
        winner = next((winner for winner in known if winner is not None), None)
        return tasks[-1] if winner is None else winner.task

    def like(self, fusion: FusionGroup) -> Delivery.Winner | None:
        """The winner for a fusion group, or for the same operator with another output dtype."""
        # Operators with another output dtype have the same knobs and nearly the same work.
        for own in candidate_specs(fusion, self._target):
            task = own.task("chain", self._target)
            winner = self.winners.get(task.key)
            if winner is not None:
                return winner
            for spec in _with_other_output_dtypes(own):
                other = self.winners.get(spec.task("chain", self._target).key)
                if other is not None:
                    return attrs.evolve(other, task=attrs.evolve(task, name=other.task.name))
        return None

    def adapted(self, fusions: Iterable[FusionGroup]) -> Kernels:
        """Add the most similar winner (``like``) for each fusion group without one."""
        winners = dict(self.winners)
        for fusion in fusions:
            winner = self.like(fusion)
            if winner is not None:
                winners.setdefault(winner.task.key, winner)
        return attrs.evolve(self, winners=winners)

    def without(self, keys: frozenset[str]) -> Kernels:
        """A copy without the kernels of tasks whose ``Task.key`` is in ``keys``."""
        winners = {key: winner for key, winner in self.winners.items() if key not in keys}
        return attrs.evolve(self, winners=winners)

    def replaced(self, configs: Mapping[str, tuple[int, ...]]) -> Kernels:
        """A copy of these kernels, with other configurations for some tasks."""
        winners = {
            key: attrs.evolve(winner, config=configs.get(key, winner.config))
            for key, winner in self.winners.items()
        }
        return attrs.evolve(self, winners=winners)

    def with_next_guesses(self, keys: Collection[str], *, give_up: bool = False) -> Kernels:
        """A copy of these kernels, with others for tasks whose present kernel fails.

        That is the next guess. If the present algorithm has large rounding errors, it is the
        fastest measured kernel of an algorithm with smaller errors, or else its best guess.
        """
        winners = dict(self.winners)
        for key in keys:
            others = () if give_up else self._others(winners[key])
            winner = next(iter(others), None)
            if winner is None:
                del winners[key]
            else:
                winners[key] = winner
        return attrs.evolve(self, winners=winners)

    def _others(self, failing: Delivery.Winner) -> Iterator[Delivery.Winner]:
        """Kernels that may replace one that fails, best first."""
        task, guesses, rank = failing.task, failing.guesses, self.rounding_rank(failing)
        if rank:
            for other in failing.others:
                if self.rounding_rank(other) < rank:
                    yield attrs.evolve(other, others=failing.others, guesses=guesses)
            guesses = self._cheapest_first(task, guesses or tuple(self.first_guesses(task)))
        for number, config in enumerate(guesses):
            other = Delivery.Winner(task=task, config=config, guesses=guesses[number + 1 :])
            if not rank or self.rounding_rank(other) < rank:
                yield other

    def rounding_rank(self, winner: Delivery.Winner) -> int:
        """How large a kernel's rounding errors are: 0 for those of sums of products."""
        builder = self.builder(winner.task)
        return 0 if builder is None else builder.rounding_rank(winner.config)

    @property
    def space(self) -> SpaceProvider:
        """The provider of the design spaces of all tasks."""
        return self._space

    def first_guesses(self, task: Task) -> list[tuple[int, ...]]:
        """The configurations of a task that its design space recommends, best first."""
        space = self._space.design_space(task)
        return [tuple(config) for config in space.first_guesses.tolist()]

    def _cheapest_first(self, task: Task, guesses: Configs) -> Configs:
        """Guesses of several algorithms, the lowest estimated cost first."""
        space = self._space.design_space(task)
        if space.guessed_cost is None or not guesses:
            return guesses
        cost = space.guessed_cost(space.values(np.array(guesses, np.int32)))
        builder = self.builder(task)
        if builder is not None:
            ranks = np.array([builder.rounding_rank(config) for config in guesses])
            cost = cost * np.where(ranks, _ROUNDED_COST, 1.0)
        return tuple(guesses[at] for at in np.argsort(cost, kind="stable"))

    @property
    def loops(self) -> TunedLoops:
        """The tuned schedules of functions outside of fusion groups."""
        plans = []
        for winner in self.winners.values():
            builder = self.builder(winner.task) if winner.task.operator == KIND else None
            if builder is None:
                continue
            plan = plan_of(builder, winner.config)
            if plan is None:
                log.warning("loops_keep_default_schedule", task=winner.task.name)
                self._builders[winner.task.key] = None
            else:
                plans.append((winner.task, plan))
        return TunedLoops.of(plans)

    def of(self, fusion: FusionGroup) -> OperatorKernel | None:
        """The kernel of a fusion group, or None if the operator's task has no winner."""
        task = self.task_of(fusion)
        winner = self.winners.get(task.key)
        builder = None if winner is None else self.builder(winner.task)
        if winner is None or builder is None:
            return None
        operator = builder.operator
        inputs = list(builder.inputs)
        for index, constant in zip(
            sorted(operator.constants), fusion.constants.arrays, strict=True
        ):
            inputs[index] = np.ascontiguousarray(constant)
        builder.use(inputs)
        program = self._program(task.key, builder)
        if program is None:
            return None
        return OperatorKernel(
            task=winner.task.name,
            function=program.function,
            arguments=tuple(
                np.ascontiguousarray(array) if index in operator.constants else None
                for index, array in enumerate(program.inputs)
            ),
            plain_loops=program.plain_loops,
        )

    def _program(self, key: str, builder: TVMBuilder) -> Program | None:
        """The program of a task's winner; the next guess replaces one that cannot be built."""
        while (winner := self.winners.get(key)) is not None:
            try:
                return builder.program(winner.config)
            except Exception as error:
                if winner.checked:
                    raise
                if isinstance(error, InvalidConfigurationError):
                    log.warning("guess_not_built", task=winner.task.name, problem=str(error))
                else:
                    fall_back("guess_not_built", error, task=winner.task.name)
                self.winners = self.with_next_guesses([key]).winners
        return None

    def builder(self, task: Task) -> TVMBuilder | None:
        """The builder of a task's kernels; None if another compiler makes them."""
        if task.key not in self._builders:
            builder = self._space.builder(task, threads=1)
            if not isinstance(builder, TVMBuilder):
                log.warning("kernel_of_another_compiler_left_out", task=task.name)
            self._builders[task.key] = builder if isinstance(builder, TVMBuilder) else None
        return self._builders[task.key]

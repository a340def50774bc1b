"""Tuned kernels for the chains of a network: the function, and the chain's own constants packed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.errors import InvalidConfigurationError
from chameleon_core.fallbacks import fall_back
from chameleon_core.stages import SpaceProvider, Winner
from chameleon_core.task import Task
from chameleon_tvm.building.builder import TVMBuilder
from chameleon_tvm.building.kernel import Program
from chameleon_tvm.operators.specs import OperatorSpec, TypedSpec
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.types import COMPUTE
from numpy.typing import NDArray

from chameleon_networks.compile.loop_tasks import TunedLoops
from chameleon_networks.graph.fused_operators import FusedOperator
from chameleon_networks.graph.narrow_weights import specs_for

log = structlog.get_logger()


def _next_guess(winner: Winner) -> Winner | None:
    """The guess that comes after one that is not to be used; None if there is none left."""
    if not winner.guesses:
        return None
    config, *further = winner.guesses
    return Winner(task=winner.task, config=config, guesses=tuple(further))


def _with_other_outputs(spec: OperatorSpec) -> Iterator[OperatorSpec]:
    """The same operator with each other type that its output may have."""
    if isinstance(spec, TypedSpec):
        for kind in COMPUTE[spec.dtype].outputs:
            if kind != spec.output_dtype:
                yield attrs.evolve(spec, output_dtype=kind)


@attrs.frozen(kw_only=True, eq=False)
class OperatorKernel:
    """The function that computes one chain, and its arguments.

    Attributes:
        task: name of the task it was tuned as.
        function: parameters are the chain's inputs and packed constants, then the output.
        arguments: one per parameter but the output: a packed constant, or None for an input.
        plain_loops: as in ``Program``.
    """

    task: str
    function: tirx.PrimFunc
    arguments: tuple[NDArray[Any] | None, ...]
    plain_loops: bool


def _copied(winners: Mapping[str, Winner]) -> dict[str, Winner]:
    return dict(winners)


@attrs.define(eq=False)
class Kernels:
    """The winners of a run as kernels of a network's chains.

    Args:
        winners: the best configuration of every task, by ``Task.key``.
        space: what they are configurations of.
        target: the resolved target.
    """

    _winners: dict[str, Winner] = attrs.field(converter=_copied)
    _space: SpaceProvider
    _target: str
    _builders: dict[str, TVMBuilder | None] = attrs.field(factory=dict)

    def task_of(self, chain: FusedOperator) -> Task:
        """The task that a chain is an occurrence of, named as its winner."""
        tasks = [spec.task("chain", self._target) for spec in specs_for(chain, self._target)]
        known = (self._winners.get(task.key) for task in tasks)
        winner = next((winner for winner in known if winner is not None), None)
        return tasks[-1] if winner is None else winner.task

    def like(self, chain: FusedOperator) -> Winner | None:
        """The winner of a chain's task, or of the same operator with another type of its output.

        In a network of several types, an output may have another type than in a network of one.
        Both have the same knobs and nearly the same work.
        """
        for own in specs_for(chain, self._target):
            task = own.task("chain", self._target)
            winner = self._winners.get(task.key)
            if winner is not None:
                return winner
            for spec in _with_other_outputs(own):
                other = self._winners.get(spec.task("chain", self._target).key)
                if other is not None:
                    return attrs.evolve(other, task=attrs.evolve(task, name=other.task.name))
        return None

    def adapted(self, chains: Iterable[FusedOperator]) -> Kernels:
        """The same kernels, with those of ``like`` for chains that have none of their own."""
        winners = dict(self._winners)
        for chain in chains:
            winner = self.like(chain)
            if winner is not None:
                winners.setdefault(winner.task.key, winner)
        return attrs.evolve(self, winners=winners)

    def without(self, keys: frozenset[str]) -> Kernels:
        """The same kernels but those of some tasks."""
        winners = {key: winner for key, winner in self._winners.items() if key not in keys}
        return attrs.evolve(self, winners=winners)

    def replaced(self, configs: Mapping[str, tuple[int, ...]]) -> Kernels:
        """The same kernels but for those of some tasks, which get other configurations.

        Args:
            configs: by ``Task.key``.
        """
        winners = {
            key: attrs.evolve(winner, config=configs.get(key, winner.config))
            for key, winner in self._winners.items()
        }
        return attrs.evolve(self, winners=winners)

    def with_next_guesses(self, keys: Collection[str], *, give_up: bool = False) -> Kernels:
        """The same kernels but for guesses that make room for the next ones.

        Args:
            keys: of tasks that were never measured.
            give_up: have them no kernel at all, rather than the next guess if there is one.
        """
        winners = dict(self._winners)
        for key in keys:
            better = None if give_up else _next_guess(winners[key])
            if better is None:
                del winners[key]
            else:
                winners[key] = better
        return attrs.evolve(self, winners=winners)

    def joined(self, winners: Mapping[str, Winner]) -> Kernels:
        """The same kernels and some more.

        Args:
            winners: by ``Task.key``; of tasks that have a kernel already they count for nothing.
        """
        return attrs.evolve(self, winners={**winners, **self._winners})

    @property
    def keys(self) -> list[str]:
        """Identities of the tasks that have a kernel."""
        return list(self._winners)

    @property
    def winners(self) -> Mapping[str, Winner]:
        """The winners by ``Task.key``."""
        return self._winners

    @property
    def loops(self) -> TunedLoops:
        """The schedules of functions that are no chains."""
        return TunedLoops.of(self._winners.values())

    def of(self, chain: FusedOperator) -> OperatorKernel | None:
        """The kernel of a chain, or None if its task has no winner."""
        task = self.task_of(chain)
        winner = self._winners.get(task.key)
        builder = None if winner is None else self._builder(winner.task)
        if winner is None or builder is None:
            return None
        operator = builder.operator
        inputs = list(builder.inputs)
        for index, constant in zip(sorted(operator.constants), chain.constants.arrays, strict=True):
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
        """The program of a task's winner; of a guess that gives none, that of the next guess."""
        while (winner := self._winners.get(key)) is not None:
            try:
                return builder.program(winner.config)
            except Exception as error:
                if winner.checked:
                    raise
                if isinstance(error, InvalidConfigurationError):
                    log.warning("guess_not_built", task=winner.task.name, problem=str(error))
                else:
                    fall_back("guess_not_built", error, task=winner.task.name)
                self._winners.pop(key)
                following = _next_guess(winner)
                if following is not None:
                    self._winners[key] = following
        return None

    def _builder(self, task: Task) -> TVMBuilder | None:
        if task.key not in self._builders:
            builder = self._space.builder(task, threads=1)
            if not isinstance(builder, TVMBuilder):
                log.warning("kernel_of_another_compiler_left_out", task=task.name)
            self._builders[task.key] = builder if isinstance(builder, TVMBuilder) else None
        return self._builders[task.key]

"""Tasks of a run that are tuned together: those of the network as it is, then their alternatives.

Alternatives (``Task.alternative_of``) come once the others have ended: nothing of those depends on
them, and what an alternative has to beat is known.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from chameleon_core.loop.plugin_contract import PluginContract, contract_of
from chameleon_core.loop.round.stages import generator
from chameleon_core.loop.round.task_run import TaskRun
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.schedulers import Scheduler, SchedulerContext


@attrs.frozen(kw_only=True, eq=False)
class Group:
    """Tasks that one scheduler chooses among.

    Attributes:
        runs: the tasks.
        scheduler: theirs.
        contract: names the scheduler when it breaks its contract.
    """

    runs: Sequence[TaskRun]
    scheduler: Scheduler
    contract: PluginContract

    @property
    def heaviest(self) -> list[TaskRun]:
        """The tasks, that with most of the network's work first."""
        return sorted(self.runs, key=lambda run: -run.task.weight * run.task.flop)

    def next(self) -> TaskRun | None:
        """The task that gets the next batch; None where none is to have one now.

        Raises:
            PluginError: the scheduler breaks its contract.
        """
        states = [run.state for run in self.runs]
        if not any(state.waiting for state in states):
            return None
        with self.contract.call("choose the next task"):
            index = self.scheduler.next_task(states)
        if index is None:
            return None
        if index not in range(len(self.runs)) or self.runs[index].ended is not None:
            raise self.contract.broken(f"chose task {index!r}, which does not exist or is done")
        return None if states[index].in_flight else self.runs[index]


def groups_of(
    runs: Sequence[TaskRun], pipeline: ResolvedPipeline, *, batch_size: int
) -> list[Group]:
    """The groups of a run, in their order; the second one only where there are alternatives.

    Args:
        runs: its tasks.
        pipeline: names the scheduler; each group has one of its own.
        batch_size: configurations per batch.

    Raises:
        PluginError: a scheduler does not start.
    """
    own = [run for run in runs if not run.task.alternative_of]
    others = [run for run in runs if run.task.alternative_of]
    groups = [_group(pipeline, own, batch_size, "schedulers")]
    if others:
        groups.append(_group(pipeline, others, batch_size, "schedulers", "alternatives"))
    return groups


def _group(
    pipeline: ResolvedPipeline, runs: Sequence[TaskRun], batch_size: int, *path: str
) -> Group:
    contract = contract_of(pipeline.scheduler)
    context = SchedulerContext(
        tasks=[run.task for run in runs],
        rng=generator(pipeline.seed, *path),
        batch_size=batch_size,
    )
    with contract.call("start"):
        scheduler: Scheduler = pipeline.scheduler.create(context)
    return Group(runs=runs, scheduler=scheduler, contract=contract)


__all__ = ["Group", "groups_of"]

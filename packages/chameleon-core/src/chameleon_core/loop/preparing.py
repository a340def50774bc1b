"""Before the first batch: the target, what is settled by measurement, tasks, spaces, rivals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from chameleon_core.event_bus import EventBus
from chameleon_core.loop.assembly import frontend_of, spaces_of, target_of, tasks_of
from chameleon_core.loop.checking import check
from chameleon_core.loop.comparison import Rivals, stage_ref
from chameleon_core.loop.continuing import say_what_does_not_apply
from chameleon_core.loop.interruption import Interruption
from chameleon_core.loop.measuring import LazyRunner, Measuring
from chameleon_core.loop.origins import FallbackWatch
from chameleon_core.loop.settling import settled
from chameleon_core.loop.stages import SearchStages, generator
from chameleon_core.loop.task_run import TaskRun
from chameleon_core.loop.tuner import TaskTuner
from chameleon_core.loop.warm_start import WarmStart
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.run_folder import RunFolder
from chameleon_core.space import DesignSpace
from chameleon_core.stages import Archive, Frontend
from chameleon_core.task import Task


@attrs.frozen(kw_only=True, eq=False)
class Prepared:
    """What a run tunes.

    Attributes:
        frontend: the pipeline's, which knows what was settled.
        target: the resolved target.
        settled: what the frontend chose by measurement, or None.
        runs: one per task.
        rivals: of each task.
    """

    frontend: Frontend
    target: str
    settled: Mapping[str, Any] | None
    runs: list[TaskRun]
    rivals: list[Rivals]


@attrs.frozen(kw_only=True, eq=False)
class Preparation:
    """Gets a run ready. Nothing is asked or measured before ``prepare`` is called.

    Attributes:
        pipeline: what to do.
        folder: where the records go; already claimed for the pipeline.
        bus: who is told.
        interruption: the request to stop.
        runner: what measures; entered by whoever made it.
        batch_size: configurations per batch.
    """

    pipeline: ResolvedPipeline
    folder: RunFolder
    bus: EventBus
    interruption: Interruption
    runner: LazyRunner
    batch_size: int

    def prepare(self) -> Prepared:
        """Have everything ready that tuning needs; may compile, and measure, for minutes.

        Raises:
            ConfigError: the target or the model cannot be what the pipeline says.
            PluginError: a plugin breaks its contract.
            RunFolderError: the folder holds measurements for another target.
            RunInterrupted: the run was asked to stop.
        """
        pipeline = self.pipeline
        frontend, target = frontend_of(pipeline), target_of(pipeline)
        self.folder.claim_target(target)
        self._check(frontend, target)
        chosen = settled(
            pipeline,
            frontend,
            target,
            store=self.folder.store,
            measuring=Measuring(runner=self.runner, interruption=self.interruption),
        )
        _, tasks = tasks_of(pipeline, frontend, target)
        archive, watch = Archive(), FallbackWatch()
        runs = [
            self._task_run(task, space, archive, watch)
            for task, space in zip(tasks, spaces_of(pipeline, tasks), strict=True)
        ]
        earlier = WarmStart(pipeline.warm_start)
        for run in runs:
            for config in earlier.suggestions(run.task, run.space):
                run.tuner.suggest(config)
        return Prepared(
            frontend=frontend,
            target=target,
            settled=chosen,
            runs=runs,
            # Asked before tuning begins: a broken baseline should not show after an hour.
            rivals=[Rivals.of(task, pipeline.baselines) for task in tasks],
        )

    def _check(self, frontend: Frontend, target: str) -> None:
        """Refuse what cannot be delivered; recorded times say nothing of what can be, here."""
        runner = self.runner.get()
        if not runner.live:
            return
        # What it compiles is thrown away, so the first signal ends it.
        with self.interruption.at_once():
            check(
                self.pipeline,
                frontend,
                target,
                folder=str(self.folder.path),
                threads=int(runner.describe().get("threads") or 1),
                store=self.folder.store,
                publish=self.bus.publish,
            )

    def _task_run(
        self, task: Task, space: DesignSpace, archive: Archive, watch: FallbackWatch
    ) -> TaskRun:
        pipeline, store = self.pipeline, self.folder.store
        stored = store.add_task(task, pipeline.space.name, space.fingerprint)
        say_what_does_not_apply(stored, store)
        return TaskRun(
            task=task,
            space=space,
            space_ref=stage_ref(pipeline.space),
            tuner=TaskTuner(
                space,
                SearchStages.of(pipeline, task, space, archive, batch_size=self.batch_size),
                rng=generator(pipeline.seed, task.key, "tuner"),
                batch_size=self.batch_size,
                plan_size=pipeline.budget.plan_size,
            ),
            store=store,
            stored=stored,
            publish=self.bus.publish,
            watch=watch,
        )


__all__ = ["Preparation", "Prepared"]

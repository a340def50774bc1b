"""A run: one sequence from the claim of its folder to its result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from chameleon_core.event_bus import EventBus, EventLog
from chameleon_core.events import RunFinished, RunStarted
from chameleon_core.loop.end.comparison import Baselines, compared_results
from chameleon_core.loop.end.delivery import deliver
from chameleon_core.loop.end.listings import list_winners
from chameleon_core.loop.end.operator_result import OperatorResult
from chameleon_core.loop.end.result import RunResult
from chameleon_core.loop.interruption import Interruption
from chameleon_core.loop.round.batch import FallbackWatch
from chameleon_core.loop.round.in_flight import (
    batches_in_flight,
    guesses_at_once,
    tasks_at_once,
)
from chameleon_core.loop.round.measure import CheckedRunner, started
from chameleon_core.loop.round.records import TaskRecords, say_what_does_not_apply
from chameleon_core.loop.round.stages import SearchStages, generator
from chameleon_core.loop.round.task_run import TaskRun
from chameleon_core.loop.round.tuner import TaskTuner
from chameleon_core.loop.start.frontend import check, choice_of, choice_seconds
from chameleon_core.loop.start.shared_records import SharedRecords
from chameleon_core.loop.start.tasks import (
    delivers,
    device_of,
    frontend_of,
    spaces_of,
    target_of,
    tasks_of,
)
from chameleon_core.loop.start.warm_start import WarmStart
from chameleon_core.loop.totals import RunTotals
from chameleon_core.loop.tuning import Tuning
from chameleon_core.network_result import NetworkResult
from chameleon_core.pipeline.resolve import dump_pipeline
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.plugins.registry import default_registry
from chameleon_core.run_folder import BEST, NETWORK, RunFolder
from chameleon_core.space import DesignSpace
from chameleon_core.stages import Archive, Frontend, StageRef
from chameleon_core.task import Task


def run_pipeline(
    pipeline: ResolvedPipeline,
    *,
    fresh: bool = False,
    listeners: Iterable[object] = (),
    interruption: Interruption | None = None,
) -> RunResult:
    """Run a pipeline in its folder, or continue it there; a finished run is only read.

    Args:
        pipeline: what to do.
        fresh: move an earlier run in the folder aside and start anew.
        listeners: objects or modules that implement ``EventHooks``; installed plugins are told
            as well.
        interruption: through which the run may be asked to stop.

    Returns:
        The result, also in the folder's ``best.json``.

    Raises:
        ConfigError: the model or the target cannot be what the pipeline says.
        PluginError: a plugin breaks its contract.
        RunFolderError: the folder is locked, cannot be written, or belongs to another pipeline.
        RunInterrupted: the run was asked to stop; what was measured is saved.
    """
    with RunFolder(pipeline.output, fresh=fresh) as folder:
        folder.claim(pipeline, dump_pipeline(pipeline))
        finished = folder.finished(pipeline)
        if finished is not None:
            return RunResult.from_json(finished, folder=folder.path, require=pipeline.require)
        # From here on it is unfinished, whatever an earlier run with a smaller budget said.
        folder.finish(pipeline, None)
        plugins = default_registry().manager.get_plugins()
        bus = EventBus([*plugins, *listeners, EventLog(folder.events)])
        interruption = interruption or Interruption()
        described = partial(folder.store.set_fact, "runner")
        space = StageRef.of(pipeline.space)
        with (
            started(pipeline.runner, space, interruption, described) as runner,
            SharedRecords.of(pipeline, folder.store, runner, fresh=fresh) as records,
        ):
            result = _Run(pipeline, folder, bus, interruption, runner, records=records).execute()
        # Not before all is written: the disk may be full.
        bus.publish(
            RunFinished(folder=str(folder.path), seconds=result.seconds, result=result.to_json())
        )
        return result


class _Run:
    """What is left to do once the runner has started. Its constructor measures nothing."""

    def __init__(
        self,
        pipeline: ResolvedPipeline,
        folder: RunFolder,
        bus: EventBus,
        interruption: Interruption,
        runner: CheckedRunner,
        *,
        records: SharedRecords,
    ) -> None:
        self._records = records
        self._pipeline = pipeline
        self._folder = folder
        self._store = folder.store
        self._publish = bus.publish
        self._interruption = interruption
        self._runner = runner
        self._batch_size = pipeline.budget.batch_size or runner.batch_size
        self._totals = RunTotals(folder.store, runner)

    def execute(self) -> RunResult:
        """All steps in their order; each may take minutes."""
        pipeline, store, runner = self._pipeline, self._store, self._runner
        frontend, target = frontend_of(pipeline), target_of(pipeline)
        self._folder.claim_target(target)
        self._check(frontend, target)
        choice = choice_of(
            pipeline, frontend, target, store=store, runner=runner, records=self._records
        )
        _, tasks = tasks_of(pipeline, frontend, target)
        spaces = spaces_of(pipeline, tasks)
        self._records.take(tasks, spaces)
        runs = self._task_runs(tasks, spaces, device_of(pipeline, target))
        # Asked before tuning begins: a broken baseline should not show after an hour.
        baselines = [Baselines.of(task, pipeline.baselines) for task in tasks]
        try:
            self._tune(runs, choice)
            operators = self._compare(frontend, runs, baselines)
            network = self._deliver(frontend, target, operators)
        finally:
            self._totals.keep()
        return self._finish(operators, network)

    # -- before the first batch ---------------------------------------------------------------

    def _check(self, frontend: Frontend, target: str) -> None:
        """Refuse what cannot be delivered; recorded times say nothing of what can be, here."""
        if not self._runner.measures_hardware:
            return
        # What it compiles is thrown away, so the first signal ends it.
        with self._interruption.at_once():
            check(
                self._pipeline,
                frontend,
                target,
                folder=str(self._folder.path),
                threads=self._runner.threads,
                store=self._store,
                publish=self._publish,
            )

    def _task_runs(
        self, tasks: Sequence[Task], spaces: Sequence[DesignSpace], device: Mapping[str, Any]
    ) -> list[TaskRun]:
        """Every task with its stages and its records, and with what earlier runs suggest for it."""
        archive, watch = Archive(), FallbackWatch()
        runs = [
            self._task_run(task, space, archive, watch, device)
            for task, space in zip(tasks, spaces, strict=True)
        ]
        named = {run.task.name: run for run in runs}
        earlier = WarmStart(self._pipeline.warm_start)
        for run in runs:
            run.base = named.get(run.task.alternative_of)
            seconds = self._records.seconds_of(run.task)
            run.recall(batch_size=self._batch_size, seconds=seconds)
            nearest = self._records.suggestions(run.task)
            for config in (*nearest, *earlier.suggestions(run.task, run.space)):
                run.tuner.suggest(config)
        return runs

    def _task_run(
        self,
        task: Task,
        space: DesignSpace,
        archive: Archive,
        watch: FallbackWatch,
        device: Mapping[str, Any],
    ) -> TaskRun:
        pipeline, store = self._pipeline, self._store
        stored = store.add_task(task, pipeline.space.name, space.fingerprint)
        say_what_does_not_apply(stored, store)
        return TaskRun(
            space=space,
            space_ref=StageRef.of(pipeline.space),
            tuner=TaskTuner(
                space,
                SearchStages.of(
                    pipeline,
                    task,
                    space,
                    archive,
                    batch_size=self._batch_size,
                    device=device,
                ),
                rng=generator(pipeline.seed, task.key, "tuner"),
                batch_size=self._batch_size,
                plan_size=pipeline.budget.plan_size,
            ),
            records=TaskRecords(store, stored),
            publish=self._publish,
            watch=watch,
        )

    # -- rounds -------------------------------------------------------------------------------

    def _tune(self, runs: Sequence[TaskRun], choice: Mapping[str, Any] | None) -> None:
        """Measure first guesses, then batches, until every task has ended."""
        pipeline, budget, runner = self._pipeline, self._pipeline.budget, self._runner
        few = guesses_at_once(budget.tasks_at_once, batch_size=self._batch_size)
        many = tasks_at_once(
            budget.tasks_at_once,
            lanes=runner.lanes,
            batch_size=self._batch_size,
            tasks=len(runs),
        )
        tuning = Tuning(
            runs,
            pipeline,
            batch_size=self._batch_size,
            interruption=self._interruption,
            after_batch=self._totals.keep,
            seconds_before=choice_seconds(self._store),
            measures_hardware=runner.measures_hardware,
        )
        self._publish(
            RunStarted(
                folder=str(self._folder.path),
                seed=pipeline.seed,
                tasks=[run.summary(tuning.most_measurements(run)) for run in runs],
                batch_size=self._batch_size,
                total_measurements=tuning.total_measurements if runs else 0,
                seconds_left=tuning.seconds_left,
                settled=choice,
                versions=self._folder.keep_versions(pipeline, runner.describe()),
            )
        )
        tuning.tune(
            lambda at_once: batches_in_flight(runner, at_once, self._store),
            guesses_at_once=few,
            tasks_at_once=many,
        )
        for run in runs:
            run.adopt_leftovers()

    # -- after the last batch -----------------------------------------------------------------

    def _compare(
        self, frontend: Frontend, runs: Sequence[TaskRun], baselines: Sequence[Baselines]
    ) -> list[OperatorResult]:
        return compared_results(
            runs,
            baselines,
            runner=self._runner,
            store=self._store,
            interruption=self._interruption,
            publish=self._publish,
            delivers=delivers(frontend),
            seconds=lambda: self._totals.seconds,
        )

    def _deliver(
        self, frontend: Frontend, target: str, operators: Sequence[OperatorResult]
    ) -> NetworkResult:
        self._interruption.check()
        if not self._runner.measures_hardware:
            return NetworkResult()  # recorded times say nothing of what would be compiled here
        # Everything measured is stored; compiling and verifying can be done again.
        with self._interruption.at_once():
            return deliver(
                self._pipeline,
                frontend,
                target,
                operators,
                folder=self._folder.path / NETWORK,
                threads=self._runner.threads,
                publish=self._publish,
                seconds_before=self._totals.seconds,
            )

    def _finish(self, operators: Sequence[OperatorResult], network: NetworkResult) -> RunResult:
        """Write ``best.json`` and the listings."""
        pipeline = self._pipeline
        result = RunResult(
            folder=self._folder.path,
            seconds=self._totals.seconds,
            operators=tuple(operators),
            require=pipeline.require,
            network=network,
            versions=self._folder.keep_versions(pipeline, self._runner.describe(), at_end=True),
            disturbance=self._totals.disturbance,
        )
        value = result.to_json()
        self._folder.write(BEST, json.dumps(value, indent=1) + "\n")
        self._folder.finish(pipeline, value)
        list_winners(pipeline, result, runner=self._runner, interruption=self._interruption)
        return result

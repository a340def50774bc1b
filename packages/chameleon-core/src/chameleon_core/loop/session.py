"""A run from its pipeline to its result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import structlog

from chameleon_core.event_bus import EventBus
from chameleon_core.event_log import EventLog
from chameleon_core.events import ComparisonStarted, RunFinished, RunStarted
from chameleon_core.loop.assembly import frontend_of, spaces_of, target_of, tasks_of
from chameleon_core.loop.checking import check
from chameleon_core.loop.comparison import (
    Rivals,
    alternatives,
    compare,
    finalists,
    stage_ref,
    unrivalled,
    variants,
    winner,
)
from chameleon_core.loop.continuing import record_versions, say_what_does_not_apply
from chameleon_core.loop.delivery import deliver, guesses_of
from chameleon_core.loop.flights import flights_of, guesses_at_once, tasks_at_once
from chameleon_core.loop.interruption import Interruption
from chameleon_core.loop.measuring import LazyRunner, Measuring
from chameleon_core.loop.origins import FallbackWatch
from chameleon_core.loop.result import NetworkResult, OperatorResult, RunResult
from chameleon_core.loop.same_failure import convincing
from chameleon_core.loop.settling import settled, settling_seconds
from chameleon_core.loop.stages import SearchStages, generator
from chameleon_core.loop.task_run import TaskRun
from chameleon_core.loop.tuner import TaskTuner
from chameleon_core.loop.tuning import Tuning
from chameleon_core.loop.warm_start import WarmStart
from chameleon_core.pipeline.resolve import dump_pipeline
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.plugins.registry import default_registry
from chameleon_core.run_folder import BEST, NETWORK, RunFolder
from chameleon_core.space import DesignSpace
from chameleon_core.stages import Archive, Contender
from chameleon_core.store import StoredComparison
from chameleon_core.task import Task

log = structlog.get_logger()


class Session:
    """Tunes every task of a pipeline in a run folder, then compares the winners.

    Args:
        pipeline: what to do.
        folder: where the records go; already claimed for the pipeline.
        bus: who is told.
        interruption: the request to stop.
        runner: what measures; entered by whoever made it.
    """

    def __init__(
        self,
        pipeline: ResolvedPipeline,
        folder: RunFolder,
        bus: EventBus,
        interruption: Interruption,
        runner: LazyRunner,
    ) -> None:
        self._pipeline = pipeline
        self._folder = folder
        self._store = folder.store
        self._bus = bus
        self._interruption = interruption
        self._runner = runner
        self._batch_size = pipeline.budget.batch_size or runner.batch_size
        self._started = runner.now()
        self._seconds_before = float(self._store.fact("seconds") or 0.0)
        self._archive = Archive()
        self._frontend = frontend_of(pipeline)
        self._target = target_of(pipeline)
        folder.claim_target(self._target)
        self._check()
        self._settled = settled(
            pipeline,
            self._frontend,
            self._target,
            store=self._store,
            measuring=Measuring(runner=runner, interruption=interruption),
        )
        _, tasks = tasks_of(pipeline, self._frontend, self._target)
        watch = FallbackWatch()
        self._runs = [
            self._task_run(task, space, watch)
            for task, space in zip(tasks, spaces_of(pipeline, tasks), strict=True)
        ]
        earlier = WarmStart(pipeline.warm_start)
        for run in self._runs:
            for config in earlier.suggestions(run.task, run.space):
                run.tuner.suggest(config)
        # Asked before anything is measured: a broken baseline should not show after an hour.
        self._rivals = [Rivals.of(task, pipeline.baselines) for task in tasks]
        self._at_once = tasks_at_once(
            pipeline.budget.tasks_at_once,
            lanes=runner.lanes,
            batch_size=self._batch_size,
            tasks=len(tasks),
        )
        self._tuning = Tuning(
            self._runs,
            pipeline,
            batch_size=self._batch_size,
            at_once=self._at_once,
            interruption=interruption,
            publish=bus.publish,
            seconds_before=settling_seconds(self._store),
            # Recorded measurements cost nothing, and statistics of tables are of whole budgets.
            convincing=convincing(pipeline.budget.same_failure, batch_size=self._batch_size)
            if runner.get().live
            else None,
        )

    def _check(self) -> None:
        """Refuse what cannot be delivered; recorded times say nothing of what can be, here."""
        runner = self._runner.get()
        if not runner.live:
            return
        # What it compiles is thrown away, so the first signal ends it.
        with self._interruption.at_once():
            check(
                self._pipeline,
                self._frontend,
                self._target,
                folder=str(self._folder.path),
                threads=int(runner.describe().get("threads") or 1),
                store=self._store,
                publish=self._bus.publish,
            )

    def _task_run(self, task: Task, space: DesignSpace, watch: FallbackWatch) -> TaskRun:
        pipeline = self._pipeline
        stored = self._store.add_task(task, pipeline.space.name, space.fingerprint)
        say_what_does_not_apply(stored, self._store)
        return TaskRun(
            task=task,
            space=space,
            space_ref=stage_ref(pipeline.space),
            tuner=TaskTuner(
                space,
                SearchStages.of(pipeline, task, space, self._archive, batch_size=self._batch_size),
                rng=generator(pipeline.seed, task.key, "tuner"),
                batch_size=self._batch_size,
                plan_size=pipeline.budget.plan_size,
            ),
            store=self._store,
            stored=stored,
            publish=self._bus.publish,
            watch=watch,
        )

    @property
    def seconds(self) -> float:
        """Wall-clock of the run in seconds, earlier processes included."""
        return self._seconds_before + self._runner.now() - self._started

    def run(self) -> RunResult:
        """Tune, compare, and write ``best.json``.

        Raises:
            RunInterrupted: the run was asked to stop; what was measured is saved.
            PluginError: a plugin breaks its contract.
            RunFolderError: a measurement cannot be saved.
        """
        pipeline = self._pipeline
        self._bus.publish(
            RunStarted(
                folder=str(self._folder.path),
                seed=pipeline.seed,
                tasks=[run.summary(pipeline.budget.measurements) for run in self._runs],
                batch_size=self._batch_size,
                total_measurements=self._tuning.total_measurements if self._runs else 0,
                seconds_left=self._tuning.seconds_left,
                settled=self._settled,
                versions=record_versions(pipeline, self._runner, self._store),
            )
        )
        try:
            measuring = Measuring(runner=self._runner, interruption=self._interruption)
            few = guesses_at_once(pipeline.budget.tasks_at_once, batch_size=self._batch_size)
            with flights_of(measuring, few, self._store) as flights:
                for _ in self._tuning.first_guesses(flights, at_once=few):
                    self._store.set_fact("seconds", self.seconds)
            with flights_of(measuring, self._at_once, self._store) as flights:
                for _ in self._tuning.rounds(flights):
                    self._store.set_fact("seconds", self.seconds)
            for run in self._runs:
                run.adopt_leftovers()
            operators = [
                self._compare(run, rivals)
                for run, rivals in zip(self._runs, self._rivals, strict=True)
            ]
            network = self._deliver(operators)
        finally:
            self._store.set_fact("seconds", self.seconds)
        result = RunResult(
            folder=self._folder.path,
            seconds=self.seconds,
            operators=tuple(operators),
            require=pipeline.require,
            network=network,
            versions=record_versions(pipeline, self._runner, self._store),
        )
        value = result.to_json()
        self._folder.write(BEST, json.dumps(value, indent=1) + "\n")
        self._folder.finish(pipeline, value)
        self._bus.publish(
            RunFinished(folder=str(self._folder.path), seconds=result.seconds, result=value)
        )
        return result

    def _compare(self, run: TaskRun, rivals: Rivals) -> OperatorResult:
        ours = finalists(run.tuner.measurements, run.space_ref)
        if ours and rivals.contenders:
            comparison = self._comparison(run, ours, rivals)
        else:
            comparison = unrivalled(run.tuner.measurements, run.space_ref)
        config = winner(comparison)
        found = next((m for m in run.tuner.measurements if m.config == config), None)
        return OperatorResult(
            name=run.task.name,
            task=run.task.to_json(),
            space=self._pipeline.space.name,
            fingerprint=run.space.fingerprint,
            config=config,
            alternatives=alternatives(run.tuner.measurements, config),
            best=None if config is None else run.space.decode(config),
            search_seconds=None if found is None else found.cost,
            max_relative_error=None if found is None else found.max_relative_error,
            guesses=() if run.measurements else guesses_of(run.space),
            measurements=len(run.measurements),
            origins=run.origins,
            failed=run.failed,
            failure=run.failure,
            ended=run.ended,
            spending=run.spending,
            variants=variants(comparison, rivals.vendors),
        )

    def _comparison(
        self, run: TaskRun, ours: tuple[Contender, ...], rivals: Rivals
    ) -> StoredComparison:
        contenders = (*ours, *rivals.contenders)
        stored = self._store.comparison(run.row)
        if stored is not None and stored.contenders == contenders:
            return stored
        self._interruption.check()
        self._bus.publish(
            ComparisonStarted(
                task=run.task.name, finalists=len(ours), rivals=len(rivals.contenders)
            )
        )
        made = compare(self._runner.get(), self._runner.guard, run.task, contenders)
        # What came back after a request to stop may be cut short: compare again next time.
        self._interruption.check()
        self._store.set_comparison(run.row, made)
        return made

    def _deliver(self, operators: Sequence[OperatorResult]) -> NetworkResult:
        self._interruption.check()
        if not self._runner.get().live:
            return NetworkResult()  # recorded times say nothing of what would be compiled here
        # Everything measured is stored; compiling and verifying can be done again.
        with self._interruption.at_once():
            return deliver(
                self._pipeline,
                self._frontend,
                self._target,
                operators,
                folder=self._folder.path / NETWORK,
                threads=int(self._runner.get().describe().get("threads") or 1),
                seconds_before=self.seconds,
            )


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
        runner = LazyRunner(
            pipeline.runner,
            stage_ref(pipeline.space),
            interruption,
            lambda described: folder.store.set_fact("runner", described),
        )
        with runner:
            # Its workers import what they need while tasks and spaces are made here.
            runner.get()
            return Session(pipeline, folder, bus, interruption, runner).run()

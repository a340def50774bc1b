"""A run from its pipeline to its result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import structlog

from chameleon_core.event_bus import EventBus
from chameleon_core.event_log import EventLog
from chameleon_core.events import ComparisonStarted, RunFinished, RunStarted
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
from chameleon_core.loop.continuing import record_versions
from chameleon_core.loop.delivery import deliver, guesses_of
from chameleon_core.loop.flights import flights_of, guesses_at_once, tasks_at_once
from chameleon_core.loop.interruption import Interruption
from chameleon_core.loop.measuring import LazyRunner, Measuring
from chameleon_core.loop.preparing import Preparation, Prepared
from chameleon_core.loop.result import NetworkResult, OperatorResult, RunResult
from chameleon_core.loop.same_failure import convincing
from chameleon_core.loop.settling import settling_seconds
from chameleon_core.loop.task_run import TaskRun
from chameleon_core.loop.tuning import Tuning
from chameleon_core.pipeline.resolve import dump_pipeline
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.plugins.registry import default_registry
from chameleon_core.run_folder import BEST, NETWORK, RunFolder
from chameleon_core.stages import Contender
from chameleon_core.store import StoredComparison

log = structlog.get_logger()


class Session:
    """Tunes every task of a pipeline in a run folder, then compares the winners.

    Making one asks and measures nothing but how large the runner's batches are; ``run`` does all.

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
        prepared = Preparation(
            pipeline=pipeline,
            folder=self._folder,
            bus=self._bus,
            interruption=self._interruption,
            runner=self._runner,
            batch_size=self._batch_size,
        ).prepare()
        try:
            self._tune(prepared)
            operators = [
                self._compare(run, rivals)
                for run, rivals in zip(prepared.runs, prepared.rivals, strict=True)
            ]
            network = self._deliver(prepared, operators)
        finally:
            self._store.set_fact("seconds", self.seconds)
        result = RunResult(
            folder=self._folder.path,
            seconds=self.seconds,
            operators=tuple(operators),
            require=pipeline.require,
            network=network,
            versions=record_versions(pipeline, self._runner, self._store, at_end=True),
        )
        value = result.to_json()
        self._folder.write(BEST, json.dumps(value, indent=1) + "\n")
        self._folder.finish(pipeline, value)
        self._bus.publish(
            RunFinished(folder=str(self._folder.path), seconds=result.seconds, result=value)
        )
        return result

    def _tune(self, prepared: Prepared) -> None:
        """Measure first guesses, then batches, until every task has ended."""
        budget, runs = self._pipeline.budget, prepared.runs
        measuring = Measuring(runner=self._runner, interruption=self._interruption)
        few = guesses_at_once(budget.tasks_at_once, batch_size=self._batch_size)
        many = tasks_at_once(
            budget.tasks_at_once,
            lanes=self._runner.lanes,
            batch_size=self._batch_size,
            tasks=len(runs),
        )
        tuning = Tuning(
            runs,
            self._pipeline,
            batch_size=self._batch_size,
            at_once=many,
            interruption=self._interruption,
            seconds_before=settling_seconds(self._store),
            # Recorded measurements cost nothing, and statistics of tables are of whole budgets.
            convincing=convincing(budget.same_failure, batch_size=self._batch_size)
            if measuring.live
            else None,
        )
        self._bus.publish(
            RunStarted(
                folder=str(self._folder.path),
                seed=self._pipeline.seed,
                tasks=[run.summary(budget.measurements) for run in runs],
                batch_size=self._batch_size,
                total_measurements=tuning.total_measurements if runs else 0,
                seconds_left=tuning.seconds_left,
                settled=prepared.settled,
                versions=record_versions(self._pipeline, self._runner, self._store),
            )
        )
        with flights_of(measuring, few, self._store) as flights:
            for _ in tuning.first_guesses(flights, at_once=few):
                self._store.set_fact("seconds", self.seconds)
        with flights_of(measuring, many, self._store) as flights:
            for _ in tuning.rounds(flights):
                self._store.set_fact("seconds", self.seconds)
        for run in runs:
            run.adopt_leftovers()

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

    def _deliver(self, prepared: Prepared, operators: Sequence[OperatorResult]) -> NetworkResult:
        self._interruption.check()
        if not self._runner.get().live:
            return NetworkResult()  # recorded times say nothing of what would be compiled here
        # Everything measured is stored; compiling and verifying can be done again.
        with self._interruption.at_once():
            return deliver(
                self._pipeline,
                prepared.frontend,
                prepared.target,
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

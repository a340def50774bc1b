"""A run: the sequence of its steps, from locking its folder to its result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import structlog

from chameleon_core._errors import ChameleonError, PluginError, RunFolderError
from chameleon_core._event_bus import EventBus, event_log
from chameleon_core._events import RunFinished, RunStarted
from chameleon_core._loop.context import RunContext, RunTotals
from chameleon_core._loop.end.comparison import Baselines, compared_results
from chameleon_core._loop.end.delivery import check_unchanged, deliver, verify_delivery
from chameleon_core._loop.end.result import OperatorResult, RunResult
from chameleon_core._loop.end.time_use import (
    CHECKING,
    CHOOSING,
    COMPARING,
    DELIVERING,
    OPERATORS,
    TUNING,
    TimeUse,
    limit_of,
    most_seconds,
)
from chameleon_core._loop.interruption import Interruption
from chameleon_core._loop.plugin_contract import contract_of
from chameleon_core._loop.round.batch import FallbackWatch
from chameleon_core._loop.round.in_flight import running_runner
from chameleon_core._loop.round.task_run import TaskRecords, TaskRun
from chameleon_core._loop.round.tuner import TaskTuner
from chameleon_core._loop.start.earlier_runs import WarmStart
from chameleon_core._loop.start.frontend import check, choice_of, forget_choice
from chameleon_core._loop.start.shared_records import shared_records
from chameleon_core._loop.start.tasks import TaskSource, delivers
from chameleon_core._loop.tuning import TuningLoop
from chameleon_core._network_result import NetworkResult
from chameleon_core._pipeline.schema import ResolvedPipeline
from chameleon_core._pipeline.yaml import dump_yaml
from chameleon_core._plugins.factory import load_factory
from chameleon_core._run_files import RunFile
from chameleon_core._run_folder import RunFolder
from chameleon_core._space.design import DesignSpace
from chameleon_core._stages.frontend import Frontend
from chameleon_core._stages.jobs import StageRef
from chameleon_core._stages.search import Archive
from chameleon_core._task import Task
from chameleon_core._words import counted

log = structlog.get_logger()


def run_pipeline(
    pipeline: ResolvedPipeline,
    *,
    fresh: bool = False,
    listeners: Iterable[object] = (),
    interruption: Interruption | None = None,
) -> RunResult:
    """Run a pipeline in its folder, or continue its run. A finished run is only read.

    If the network of a finished run is gone or incomplete, the result has a failure that says so.

    Args:
        pipeline: the pipeline.
        fresh: whether to move an earlier run in the folder aside, and start a new one.
        listeners: objects or modules that implement ``EventHooks``. They get events in addition to
            installed plugins.
        interruption: an object with which another thread or a signal can stop the run.

    Returns:
        The result, which is also written to ``best.json`` in the folder.

    Raises:
        ConfigError: the model or the target does not fit the pipeline.
        PluginError: a plugin breaks its contract.
        RunFolderError: the folder is locked, cannot be written, or belongs to another pipeline. Or
            a file of the model has changed since the run delivered it.
        RunInterrupted: the run was stopped; all measurements are saved.
    """
    with RunFolder(pipeline.output, fresh=fresh) as folder:
        check_unchanged(folder.path, pipeline.model)
        folder.claim(pipeline, dump_yaml(dict(pipeline.document), comment=pipeline.origin))
        finished = folder.finished(pipeline)
        if finished is not None:
            if not (folder.path / RunFile.BEST).exists():
                folder.finish(pipeline, finished)
            result = RunResult.from_json(finished, folder=folder.path, require=pipeline.require)
            result = verify_delivery(result, pipeline.model.name, pipeline.registry)
            if result.network.failure is not None:
                log.warning("network_not_delivered", problem=result.network.failure)
            return result
        # The run counts as unfinished again, even if it ended before with a smaller budget.
        folder.finish(pipeline, None)
        plugins = pipeline.registry.manager.get_plugins()
        bus = EventBus([*plugins, *listeners, event_log(folder.events)])
        interruption = interruption or Interruption()
        described = partial(folder.store.set_fact, "runner")
        # Workers that measure nothing would only take cores from this process.
        space = StageRef.of(pipeline.space) if pipeline.budget.measurements != 0 else None
        with (
            running_runner(pipeline.runner, space, interruption, described) as runner,
            shared_records(pipeline, folder.store, runner, fresh=fresh) as records,
        ):
            totals = RunTotals(folder.store, runner)
            batch_size = pipeline.budget.batch_size or runner.batch_size
            source = TaskSource(pipeline)
            frontend = source.frontend()
            if pipeline.budget.measurements == 0:
                # Reading the model takes longest then; with measurements, the check reads it first.
                with source.contract.call("read the model in the background"):
                    frontend.begin(runner.threads)
            target = source.target()
            if runner.runner.is_local and pipeline.budget.measurements != 0:
                source.check_runner(target)
            folder.claim_target(target)
            run = RunContext(
                pipeline=pipeline,
                frontend=frontend,
                target=target,
                batch_size=batch_size,
                folder=folder,
                runner=runner,
                records=records,
                totals=totals,
                publish=bus.publish,
                interruption=interruption,
            )
            result = _executed(run)
        # The event comes after all files are written, because the disk may be full.
        bus.publish(
            RunFinished(folder=str(folder.path), seconds=result.seconds, result=result.to_json())
        )
        return result


def _executed(run: RunContext) -> RunResult:
    """Run all steps in their order; each may take minutes."""
    measures = run.pipeline.budget.measurements != 0
    if measures:
        _check(run)
    operators, network = _results(run)
    if network.failure is not None and not measures:
        # Without measurements a failure costs little, and most deliveries succeed unchecked.
        run = attrs.evolve(run, frontend=TaskSource(run.pipeline).frontend())
        _check(run)
        forget_choice(run.store)
        operators, network = _results(run)
    return _finished(run, operators, network)


def _check(run: RunContext) -> None:
    """Let the frontend raise an error if it cannot deliver the model on this machine."""
    if run.runner.measures_hardware:  # replayed times need no delivery
        # The check keeps no files, so the first signal may interrupt it.
        with run.interruption.at_once(), run.totals.during(CHECKING):
            check(run)


def _results(run: RunContext) -> tuple[Sequence[OperatorResult], NetworkResult]:
    """Tune the operators that follow from the frontend's choice, and deliver the network."""
    with run.totals.during(CHOOSING):
        choice = choice_of(run)
    source = TaskSource(run.pipeline)
    tasks = source.tasks(run.target, run.frontend)
    run.pipeline.check_runner(tasks)
    if run.runner.measures_hardware:
        with source.contract.call("estimate the size of its network"):
            needed = run.frontend.bytes_needed()
        RunFolderError.check_space(run.folder.path, needed)
    spaces = source.spaces(tasks)
    run.records.take(tasks, spaces)
    task_runs = _task_runs(run, tasks, spaces)
    # Baselines are made before tuning begins, so that a broken one fails at once.
    baselines = [Baselines.of(task, run.pipeline.baselines) for task in tasks]
    try:
        with run.totals.during(TUNING):
            _tune(run, task_runs, choice)
        most, started = math.inf, run.totals.seconds
        if run.runner.measures_hardware:
            most = most_seconds(run.pipeline, len(tasks))
        share = OPERATORS if delivers(run.frontend) else 1.0
        with run.totals.during(COMPARING):
            operators = compared_results(run, task_runs, baselines, share * most)
        left = most - (run.totals.seconds - started)
        with run.totals.during(DELIVERING):
            return operators, _delivered(run, operators, left)
    finally:
        run.totals.keep()


# -- before the first batch -------------------------------------------------------------------


def _task_runs(
    run: RunContext, tasks: Sequence[Task], spaces: Sequence[DesignSpace]
) -> list[TaskRun]:
    """The search of every task, with its records and the suggestions of earlier runs."""
    pipeline, size = run.pipeline, run.batch_size
    device, archive, watch = TaskSource(pipeline).device(run.target), Archive(), FallbackWatch()
    task_runs = [
        TaskRun(
            space=space,
            space_ref=StageRef.of(pipeline.space),
            records=TaskRecords.of(run.store, task, pipeline.space.name, space),
            tuner=TaskTuner.of(pipeline, task, space, archive, batch_size=size, device=device),
            publish=run.publish,
            watch=watch,
        )
        for task, space in zip(tasks, spaces, strict=True)
    ]
    named = {task_run.task.name: task_run for task_run in task_runs}
    earlier = WarmStart(pipeline.warm_start) if pipeline.warm_start else None
    for task_run in task_runs:
        task_run.base = named.get(task_run.task.alternative_of)
        task_run.recall(batch_size=size, seconds=run.records.seconds_of(task_run.task))
        suggested = run.records.suggestions(task_run.task)
        if earlier is not None:
            suggested += earlier.suggestions(task_run.task, task_run.space)
        for config in suggested:
            task_run.tuner.suggest(config)
    return task_runs


# -- rounds -----------------------------------------------------------------------------------


def _tune(run: RunContext, task_runs: Sequence[TaskRun], choice: Mapping[str, Any] | None) -> None:
    """Measure first guesses, then batches, until every task has ended."""
    tuning = TuningLoop(run, task_runs)
    allowances = tuning.allowances
    run.publish(
        RunStarted(
            folder=str(run.folder.path),
            seed=run.pipeline.seed,
            tasks=[each.summary(allowances.of(each).most(each)) for each in task_runs],
            batch_size=run.batch_size,
            total_measurements=allowances.total_measurements if task_runs else 0,
            seconds_left=allowances.seconds_left,
            settled=choice,
            versions=run.folder.keep_versions(run.pipeline, run.runner.describe()),
        )
    )
    tuning.tune()
    for task_run in task_runs:
        task_run.adopt_leftovers()


# -- after the last batch ---------------------------------------------------------------------


def _delivered(
    run: RunContext, operators: Sequence[OperatorResult], most_seconds: float
) -> NetworkResult:
    run.interruption.check()
    if not run.runner.measures_hardware:
        return NetworkResult()  # replayed times have no kernels
    # All measurements are stored, and delivery can be repeated, so the first signal may interrupt
    # it.
    with run.interruption.at_once():
        return deliver(run, operators, most_seconds)


def _finished(
    run: RunContext, operators: Sequence[OperatorResult], network: NetworkResult
) -> RunResult:
    """Write ``best.json`` and the listings of winners, and return the result."""
    result = RunResult(
        folder=run.folder.path,
        seconds=run.totals.seconds,
        operators=tuple(operators),
        require=run.pipeline.require,
        network=network,
        versions=run.folder.keep_versions(run.pipeline, run.runner.describe(), at_end=True),
        disturbance=run.totals.disturbance,
        usage=_usage(run),
        time_use=_time_use(run, operators, network),
    )
    run.folder.finish(run.pipeline, result.to_json())
    _list_winners(run, result)
    return result


def _time_use(
    run: RunContext, operators: Sequence[OperatorResult], network: NetworkResult
) -> TimeUse | None:
    """The times of the steps and what the run left out; None if its budget has no wall time."""
    limit, count = limit_of(run.pipeline, len(operators)), len(operators)
    if limit is None or not run.runner.measures_hardware:
        return None
    unmeasured = sum(not operator.measurements for operator in operators)
    uncompared = len(run.totals.uncompared)
    left_out = [
        *([f"measurements of {unmeasured} of {counted(count, 'operator')}"] * bool(unmeasured)),
        *([f"the comparison of {uncompared} of {counted(count, 'operator')}"] * bool(uncompared)),
        *network.late,
    ]
    steps, seconds = run.totals.steps, run.totals.seconds
    return TimeUse(limit=limit, seconds=seconds, steps=steps, left_out=tuple(left_out))


def _usage(run: RunContext) -> str:
    """The command or Python code that uses the result; empty if the run replayed recorded times."""
    if not run.runner.measures_hardware:
        return ""
    usage_of = getattr(type(run.frontend), "usage", Frontend.usage)
    try:
        with contract_of(run.pipeline.model).call("say how its result is used"):
            usage = str(usage_of(run.frontend, run.target) or "")
    except PluginError as error:  # the result is worth more than this sentence
        log.warning("usage_not_described", problem=str(error))
        return ""
    trusted = usage.startswith("chameleon ") and run.pipeline.model.sources
    return f"{usage} --trust-source" if trusted else usage


def _list_winners(run: RunContext, result: RunResult) -> None:
    """Write listings of the winners. The result is already stored, so errors are only logged."""
    # Replayed times are not those of kernels that this machine would compile.
    listings = run.pipeline.space.record.listings
    if run.runner.measures_hardware and listings:
        try:
            load_factory(listings)(run, result)
        except ChameleonError as error:
            log.warning("listings_not_written", problem=str(error))

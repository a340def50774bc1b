"""The end of a run: the fastest configurations are timed again, in turns with the baselines."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

import attrs
import numpy as np
import structlog

from chameleon_core._events import ComparisonProgressed, ComparisonStarted
from chameleon_core._loop.context import RunContext
from chameleon_core._loop.end.result import OperatorResult, VariantResult
from chameleon_core._loop.end.time_use import SHARE
from chameleon_core._loop.plugin_contract import contract_of
from chameleon_core._loop.round.batch import Config, tuples
from chameleon_core._loop.round.task_run import TaskRecords, TaskRun
from chameleon_core._loop.start.shared_records import shares_records
from chameleon_core._loop.start.tasks import delivers
from chameleon_core._measurement import Measurement
from chameleon_core._pipeline.schema import StageSpec
from chameleon_core._stages.code import Baseline
from chameleon_core._stages.jobs import (
    TUNED,
    ComparisonPlan,
    Contender,
    MeasureJob,
    StageRef,
)
from chameleon_core._store.records import RecordStore, StoredComparison
from chameleon_core._task import Task

_NOTCH = 1.57
"""Half width of a median's notch, in interquartile ranges over the root of the number of repeats.
Medians differ (at a level of about 5 %) if their notches do not overlap (McGill, Tukey and Larsen
1978)."""


def best_of(measurements: Iterable[Measurement], *, shared: bool) -> Measurement | None:
    """The measurement of the configuration to choose, or None if no configuration succeeded.

    Args:
        measurements: measurements of one task.
        shared: whether other processes share these records and must choose the same configuration.
            If True, the choice is the configuration with the lowest knob indices among those that
            tie with the fastest one. If False, it is the fastest configuration.
    """
    valid = [m for m in measurements if m.ok]
    fastest = min(valid, key=lambda m: m.cost, default=None)
    if fastest is None or not shared:
        return fastest
    return min((m for m in valid if ties(m, fastest)), key=lambda m: m.config)


def ties(measurement: Measurement, fastest: Measurement) -> bool:
    """Whether a measured time cannot be distinguished from the lowest time.

    A time ties if its median exceeds the lowest median by at most the share ``Measurement.TIE``. It
    also ties if the confidence intervals of both overlap and their shortest repeats agree up to
    ``Measurement.TIE``. The intervals are not enough: on a busy machine they are so wide that
    kernels of half the speed would tie. A disturbance only makes repeats longer, so the shortest
    repeats are reliable.

    Args:
        measurement: a measurement that succeeded.
        fastest: the measurement with the lowest median time.
    """
    if measurement.cost <= (1.0 + Measurement.TIE) * fastest.cost:
        return True
    if min(measurement.seconds) > (1.0 + Measurement.TIE) * min(fastest.seconds):
        return False
    return measurement.cost - _half_width(measurement) <= fastest.cost + _half_width(fastest)


def _half_width(measurement: Measurement) -> float:
    """Half the confidence interval of a median, in seconds; 0 with fewer than three repeats."""
    seconds = measurement.seconds
    if len(seconds) < 3:  # noqa: PLR2004 - quartiles need three values
        return 0.0
    low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return _NOTCH * (high - low) / math.sqrt(len(seconds))


log = structlog.get_logger()

NEARLY, ALTERNATIVES = 1.12, 2
"""Largest time, relative to the winner's, and number of further configurations that may be tried in
a network."""

FINALISTS = 3
"""Number of a task's fastest configurations that are compared, because the search ranks them only
roughly."""


_MOST_CLOSE = 6
"""Number of a network task's nearly equal configurations that are timed in one batch."""


@attrs.frozen(kw_only=True)
class TimeSlot:
    """The time limit of one of a run's final comparisons, and its number for the progress display.

    Attributes:
        number: number of the comparison's task, from 1.
        of: the number of tasks in the run.
        seconds: the wall-clock time in seconds that the comparison should take at most.
        is_over: whether the budget's wall-clock time allows no further comparison.
    """

    number: int = 1
    of: int = 1
    seconds: float = math.inf
    is_over: bool = False

    @classmethod
    def among(
        cls, number: int, of: int, *, before: float, now: float, most: float = math.inf
    ) -> TimeSlot:
        """Compute the time limit of a comparison that is about to begin.

        All comparisons together may take the share ``SHARE`` of the run's wall-clock time, which
        includes the comparisons. The comparisons that remain get equal parts of the time that is
        left for comparisons.

        Args:
            number: number of the comparison's task, from 1.
            of: the number of tasks in the run.
            before: wall-clock time of the run in seconds when the first comparison began.
            now: wall-clock time of the run in seconds now.
            most: the wall-clock time in seconds after which no further comparison begins.
        """
        together = before * SHARE / (1.0 - SHARE)
        left = max(0.0, together - (now - before))
        is_over = now - before >= most
        return cls(number=number, of=of, seconds=left / (of - number + 1), is_over=is_over)


@attrs.frozen(kw_only=True)
class Baselines:
    """The baselines of one task.

    The final comparison times them beside the task's fastest configurations.

    Attributes:
        contenders: every variant of every baseline that can compute the task.
        vendors: names of the baselines that are vendors' libraries, such as ``onednn``.
    """

    contenders: tuple[Contender, ...] = ()
    vendors: frozenset[str] = frozenset()

    @classmethod
    def of(cls, task: Task, specs: Sequence[StageSpec]) -> Baselines:
        """Collect the baselines that can compute a task, with all their variants.

        Args:
            task: the task.
            specs: the baselines that the pipeline names.

        Raises:
            PluginError: a baseline breaks its contract.
        """
        contenders: list[Contender] = []
        vendors = set()
        for spec in specs:
            contract = contract_of(spec)
            with contract.call(f"say whether it computes task {task.name!r}"):
                baseline: Baseline = spec.create()
                if not baseline.supports(task):
                    log.info("task_not_supported", baseline=spec.name, task=task.name)
                    continue
                variants = list(baseline.variants(task))
                if baseline.vendor:
                    vendors.add(spec.name)
            contenders += [
                Contender(name=spec.name, variant=variant, stage=StageRef.of(spec))
                for variant in variants
            ]
        return cls(contenders=tuple(contenders), vendors=frozenset(vendors))


def finalists(measurements: Sequence[Measurement], space: StageRef) -> tuple[Contender, ...]:
    """The fastest configurations of a task, fastest first, as contenders."""
    valid = sorted((m for m in measurements if m.ok), key=lambda m: m.cost)
    return tuple(Contender(name=TUNED, stage=space, config=m.config) for m in valid[:FINALISTS])


def alternatives(
    measurements: Sequence[Measurement], chosen: tuple[int, ...] | None
) -> tuple[tuple[int, ...], ...]:
    """Configurations nearly as fast as the chosen one, and as different from it as possible.

    The delivery tries them inside the whole network. Beside the network's other kernels and
    weights, one of them may be faster than the chosen configuration.

    Args:
        measurements: measurements of one task.
        chosen: the chosen configuration's knob indices, or None if no configuration succeeded.
    """
    costs = {m.config: m.cost for m in measurements if m.ok}
    if chosen not in costs or chosen is None:
        return ()
    limit = NEARLY * costs[chosen]
    near = sorted((cost, config) for config, cost in costs.items() if cost <= limit)
    rows = np.array([config for _, config in near])
    configs = [chosen]
    while len(configs) <= ALTERNATIVES:
        unlike = np.min([(rows != np.array(config)).sum(axis=1) for config in configs], axis=0)
        farthest = int(unlike.argmax())  # the fastest of the configurations that differ most
        if not unlike[farthest]:
            break
        configs.append(near[farthest][1])
    return tuple(configs[1:])


def uncompared(
    measurements: Sequence[Measurement], space: StageRef, *, shared: bool = False
) -> StoredComparison:
    """The result of a network's task without a comparison: its best configuration from the search.

    A network's operators have no baselines, because the network is compared as a whole. Timing each
    operator again would only take time.

    Args:
        measurements: measurements of the task.
        space: the provider of the task's design space, with its options.
        shared: whether other processes have the same records and must choose the same
            configuration. If True, the lowest knob indices decide among equally fast
            configurations (``best_of``).
    """
    best = best_of(measurements, shared=shared)
    if best is None:
        return StoredComparison(contenders=(), measurements=())
    contender = Contender(name=TUNED, stage=space, config=best.config)
    return StoredComparison(contenders=(contender,), measurements=(best,))


def compared(
    run: RunContext, task_run: TaskRun, baselines: Baselines, slot: TimeSlot
) -> StoredComparison:
    """Time a task's fastest configurations against its baselines, or read a stored comparison.

    If the budget has no measurements and the frontend delivers nothing, recommended or else random
    configurations are compared. If a record of another run is among these configurations, the
    comparison compiles and checks it on this machine. If no configuration succeeds, failed records
    are dropped, and the next fastest configurations are compared.

    Args:
        run: the run.
        task_run: the search of the task, which has ended.
        baselines: the task's baselines.
        slot: the number and time limit of this comparison.

    Raises:
        PluginError: the runner breaks its contract.
        RunInterrupted: the user asked the run to stop; this comparison is not stored, so a resumed
            run repeats it.
    """
    measurements = list(task_run.tuner.measurements)
    while True:
        comparison = _compared(run, task_run, measurements, baselines, slot)
        ours = comparison.tuned
        wrong = {
            config: measurement
            for config, measurement in ours
            if not measurement.ok and task_run.records.is_recorded(config)
        }
        for config, measurement in wrong.items():
            log.warning(
                "failing_record_not_used",
                task=task_run.task.name,
                config=config,
                failure=f"{measurement.failure}: {measurement.message}",
            )
        if not wrong or any(measurement.ok for _, measurement in ours):
            return comparison
        measurements = [m for m in measurements if m.config not in wrong]


def _compared(
    run: RunContext,
    task_run: TaskRun,
    measurements: Sequence[Measurement],
    baselines: Baselines,
    slot: TimeSlot,
) -> StoredComparison:
    row, shared, name = task_run.records.stored.id, shares_records(run.store), task_run.task.name
    ours = finalists(measurements, task_run.space_ref)
    best = best_of(measurements, shared=shared)
    # Delivery checks a network with all of its kernels, so records need no check before.
    recorded = best is not None and task_run.records.is_recorded(best.config)
    unchecked = recorded and not delivers(run.frontend)
    if run.pipeline.budget.measurements == 0 and not (ours or delivers(run.frontend)):
        # Without measurements, nothing else compiles and checks the recommended configurations.
        configs = tuples(task_run.tuner.recommended(FINALISTS)[:FINALISTS])
        ours = tuple(
            Contender(name=TUNED, stage=task_run.space_ref, config=config) for config in configs
        )
        unchecked = True
    if not ours or not (baselines.contenders or unchecked):
        if shared or recorded or not delivers(run.frontend):
            return uncompared(measurements, task_run.space_ref, shared=shared)
        return _timed_together(run, task_run, measurements, slot)
    contenders = (*ours, *baselines.contenders)
    stored = run.store.comparison(row)
    if stored is not None and stored.contenders == contenders:
        return stored
    if slot.is_over and not unchecked:
        run.totals.uncompared.append(name)
        return uncompared(measurements, task_run.space_ref, shared=shared)
    run.interruption.check()
    run.publish(
        ComparisonStarted(
            task=name,
            finalists=len(ours),
            rivals=len(baselines.contenders),
            place=slot.number,
            of=slot.of,
        )
    )
    plan = ComparisonPlan(
        seconds=slot.seconds,
        tell=lambda step, done, of: run.publish(
            ComparisonProgressed(task=name, step=step, done=done, of=of)
        ),
    )
    comparison = StoredComparison(
        contenders=contenders, measurements=run.runner.compare(task_run.task, contenders, plan)
    )
    # After a request to stop, the comparison may be incomplete, so it is not stored.
    run.interruption.check()
    run.store.set_comparison(row, comparison)
    return comparison


def _timed_together(
    run: RunContext, task_run: TaskRun, measurements: Sequence[Measurement], slot: TimeSlot
) -> StoredComparison:
    """A network's task: its fastest configurations from several batches, timed in one batch.

    The machine may have been slower during some of the batches. Only the times of one batch are
    taken in turns. If the fastest configuration has no close rival, nothing is timed.
    """
    space, row = task_run.space_ref, task_run.records.stored.id
    close = close_measurements(measurements)
    several_batches = len(measurements) > run.batch_size
    in_turns = run.runner.measures_hardware and run.runner.lanes == 0
    if len(close) < 2 or not (several_batches and in_turns):  # noqa: PLR2004 - a pair
        return uncompared(measurements, space)
    contenders = tuple(Contender(name=TUNED, stage=space, config=m.config) for m in close)
    stored = run.store.comparison(row)
    if stored is not None and stored.contenders == contenders:
        return stored
    if slot.is_over:
        run.totals.uncompared.append(task_run.task.name)
        return uncompared(measurements, space)
    job = MeasureJob(
        task=task_run.task,
        space=space,
        configs=[m.config for m in close],
        best_seconds=close[0].cost,
        final=True,
    )
    again = {m.config: m for m in run.runner.measure(job)}
    if not any(m.ok for m in again.values()):
        return uncompared(measurements, space)
    comparison = StoredComparison(
        contenders=contenders, measurements=tuple(again[m.config] for m in close)
    )
    run.store.set_comparison(row, comparison)
    return comparison


def close_measurements(measurements: Iterable[Measurement]) -> list[Measurement]:
    """The fastest configuration of a task and those nearly as fast, fastest first."""
    valid = sorted((m for m in measurements if m.ok), key=lambda m: m.cost)
    return [m for m in valid if m.cost <= NEARLY * valid[0].cost][:_MOST_CLOSE]


def winner(comparison: StoredComparison, *, shared: bool = False) -> tuple[int, ...] | None:
    """The knob indices of the fastest tuned configuration, or None if all of them failed.

    Args:
        comparison: the comparison of one task.
        shared: whether other processes must choose the same configuration (``best_of``).
    """
    tuned = [attrs.evolve(measurement, config=config) for config, measurement in comparison.tuned]
    best = best_of(tuned, shared=shared)
    return None if best is None else best.config


def variants(
    comparison: StoredComparison, vendors: frozenset[str], best: tuple[int, ...] | None
) -> tuple[VariantResult, ...]:
    """The results of a comparison: the winner and all baselines.

    Other tuned configurations are left out.

    Args:
        comparison: the comparison of one task.
        vendors: names of the baselines that are vendors' kernels.
        best: the winner's knob indices, or None if the task has no winner.
    """
    return tuple(
        VariantResult(
            name=contender.name,
            variant=contender.variant,
            vendor=contender.name in vendors,
            seconds=measurement.cost if measurement.ok else None,
            failure=None
            if measurement.failure is None
            else f"{measurement.failure.value}: {measurement.message}",
        )
        for contender, measurement in comparison.rows
        if contender.name != TUNED or contender.config == best
    )


FURTHER = 3
"""Number of further records that may replace a winner that fails. After them come the
configurations that the space recommends without measurements."""


def interim_result(store: RecordStore, stored: RecordStore.TaskRow) -> OperatorResult:
    """A task's result from the measurements so far, without a comparison.

    Args:
        store: the run's record store.
        stored: the task, as the store holds it.
    """
    records = TaskRecords(store, stored)
    fastest = best_of(records.measured.values(), shared=shares_records(store))
    result = _counted(records)
    if fastest is None:
        return result
    return attrs.evolve(
        result,
        config=fastest.config,
        best=store.knobs(stored.id, fastest.config),
        search_seconds=fastest.cost,
        max_relative_error=fastest.max_relative_error,
        recorded=records.is_recorded(fastest.config),
    )


def compared_results(
    run: RunContext,
    task_runs: Sequence[TaskRun],
    baselines: Sequence[Baselines],
    most_seconds: float = math.inf,
) -> list[OperatorResult]:
    """Compare the winners of all tasks, one task after the other, and return the results.

    Args:
        run: the run.
        task_runs: the searches of the tasks, which have ended.
        baselines: the baselines of each task, in the order of ``task_runs``.
        most_seconds: the wall-clock time in seconds after which no further comparison begins.
    """
    shared, before, results = shares_records(run.store), run.totals.seconds, []
    for number, (task_run, others) in enumerate(zip(task_runs, baselines, strict=True), 1):
        now = run.totals.seconds
        slot = TimeSlot.among(number, len(task_runs), before=before, now=now, most=most_seconds)
        comparison = compared(run, task_run, others, slot)
        results.append(final_result(task_run, comparison, others, shared=shared))
    return results


def final_result(
    run: TaskRun, comparison: StoredComparison, baselines: Baselines, *, shared: bool = False
) -> OperatorResult:
    """The result of a task whose search has ended.

    Args:
        run: the search of the task.
        comparison: the comparison of its fastest configurations with the baselines.
        baselines: the baselines of the task.
        shared: whether other processes must choose the same configuration (``best_of``).
    """
    config = winner(comparison, shared=shared)
    leader = None if config is None else run.records.measured.get(config)
    checked = leader or next((m for c, m in comparison.tuned if c == config), None)
    # A comparison measures again, so the search's own measurement is in it only if nothing was
    # compared.
    recorded = run.records.is_recorded(config) and any(
        measurement is leader for measurement in comparison.measurements
    )
    return attrs.evolve(
        _counted(run.records),
        config=config,
        alternatives=alternatives(run.tuner.measurements, config),
        best=None if config is None else run.space.decode(config),
        search_seconds=None if leader is None else leader.cost,
        max_relative_error=None if checked is None else checked.max_relative_error,
        guesses=_instead(run, config) if recorded or not run.records.measured else (),
        recorded=recorded,
        predicted=run.tuner.predicted and not run.records.measured,
        ended=run.ended,
        spending=run.spending,
        variants=variants(comparison, baselines.vendors, config),
    )


def _instead(run: TaskRun, chosen: Config | None) -> tuple[Config, ...]:
    """Configurations to use if the winner fails, or if there is no winner, best first."""
    valid = sorted((m for m in run.records.measured.values() if m.ok), key=lambda m: m.cost)
    further = (*(m.config for m in valid[: 1 + FURTHER]), *tuples(run.tuner.recommended()))
    return tuple(dict.fromkeys(config for config in further if config != chosen))


def _counted(records: TaskRecords) -> OperatorResult:
    """The part of a task's result that does not depend on a winner."""
    stored = records.stored
    return OperatorResult(
        name=stored.task.name,
        task=stored.task.to_json(),
        space=stored.space,
        fingerprint=stored.fingerprint,
        measurements=len(records.measured),
        origins=records.origins,
        failed=records.failed,
        failure=records.failure,
        spending=stored.spending,
    )

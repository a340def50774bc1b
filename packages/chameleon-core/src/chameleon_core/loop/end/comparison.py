"""The end of a run: winners re-measured, interleaved with what a user would run instead."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

import attrs
import numpy as np
import structlog

from chameleon_core.events import ComparisonProgressed, ComparisonStarted
from chameleon_core.loop.context import RunContext
from chameleon_core.loop.end.result import OperatorResult, VariantResult
from chameleon_core.loop.plugin_contract import contract_of
from chameleon_core.loop.round.batch import Config, tuples
from chameleon_core.loop.round.task_run import TaskRecords, TaskRun
from chameleon_core.loop.start.shared_records import shares_records
from chameleon_core.loop.start.tasks import delivers
from chameleon_core.measurement import Measurement
from chameleon_core.pipeline.schema import StageSpec
from chameleon_core.stages import Baseline, ComparisonPlan, Contender, StageRef
from chameleon_core.stages.jobs import TUNED
from chameleon_core.store import RecordStore, StoredComparison, StoredTask
from chameleon_core.task import Task

TIE = 0.02
"""Times this close to the lowest one, as a share of it, are ties."""

_NOTCH = 1.57
"""Medians differ (at about 5 %) where their notches, this many interquartile ranges over the root
of the number of repeats to either side, do not overlap (McGill, Tukey and Larsen 1978)."""


def best_of(measurements: Iterable[Measurement], *, shared: bool) -> Measurement | None:
    """The measurement of the configuration to choose, or None if none succeeded.

    Args:
        measurements: measurements of one task.
        shared: whether another process has to choose the same configuration. Then the choice is the
            lowest knob indices among all that tie with the fastest one. Otherwise it is the fastest
            one.
    """
    valid = [m for m in measurements if m.ok]
    fastest = min(valid, key=lambda m: m.cost, default=None)
    if fastest is None or not shared:
        return fastest
    return min((m for m in valid if ties(m, fastest)), key=lambda m: m.config)


def ties(measurement: Measurement, fastest: Measurement) -> bool:
    """Whether a time cannot be told from the lowest time.

    Confidence intervals alone do not decide: on a busy machine they are so wide that kernels of
    half the speed would tie. A disturbance makes a repeat longer, so the shortest repeats have to
    agree as well.

    Args:
        measurement: a measurement that succeeded.
        fastest: the measurement with the lowest cost.
    """
    if measurement.cost <= (1.0 + TIE) * fastest.cost:
        return True
    if min(measurement.seconds) > (1.0 + TIE) * min(fastest.seconds):
        return False
    return measurement.cost - _half_width(measurement) <= fastest.cost + _half_width(fastest)


def _half_width(measurement: Measurement) -> float:
    """Half the interval around a median, in seconds; 0 where there is nothing to tell it by."""
    seconds = measurement.seconds
    if len(seconds) < 3:  # noqa: PLR2004 - quartiles need as many
        return 0.0
    low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return _NOTCH * (high - low) / math.sqrt(len(seconds))


log = structlog.get_logger()

NEARLY, ALTERNATIVES = 1.12, 2
"""What else may be tried in a network: so many configurations, at most this much slower."""

FINALISTS = 3
"""Configurations of a task that are compared: search timings rank the leaders only roughly."""


SHARE = 0.25
"""Of a run's wall-clock until their end, what its comparisons should take together."""


@attrs.frozen(kw_only=True)
class TimeSlot:
    """The number and the time limit of one comparison of a run.

    Attributes:
        number: number of the comparison's task, from 1.
        of: number of tasks.
        seconds: wall-clock time in seconds that the comparison should take at most.
    """

    number: int = 1
    of: int = 1
    seconds: float = math.inf

    @classmethod
    def among(cls, number: int, of: int, *, before: float, now: float) -> TimeSlot:
        """The slot of a comparison that is about to begin.

        The remaining comparisons share the time that earlier and known ones left.

        Args:
            number: number of the comparison's task, from 1.
            of: number of tasks.
            before: wall-clock time of the run in seconds when the first comparison began.
            now: wall-clock time of the run in seconds now.
        """
        together = before * SHARE / (1.0 - SHARE)
        left = max(0.0, together - (now - before))
        return cls(number=number, of=of, seconds=left / (of - number + 1))


@attrs.frozen(kw_only=True)
class Baselines:
    """The baselines of one task.

    Attributes:
        contenders: every variant of every baseline that can compute the task.
        vendors: names of the baselines that count as the vendor's.
    """

    contenders: tuple[Contender, ...] = ()
    vendors: frozenset[str] = frozenset()

    @classmethod
    def of(cls, task: Task, specs: Sequence[StageSpec]) -> Baselines:
        """Ask the pipeline's baselines.

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
                    log.info(
                        "a baseline does not compute a task", baseline=spec.name, task=task.name
                    )
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

    The fastest kernel alone need not be the fastest in a network, beside other kernels and their
    weights. Similar configurations would have the same weakness.

    Args:
        measurements: measurements of one task.
        chosen: the winner, or None if there is none.
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
        farthest = int(unlike.argmax())  # the fastest of those that differ most
        if not unlike[farthest]:
            break
        configs.append(near[farthest][1])
    return tuple(configs[1:])


def uncompared(
    measurements: Sequence[Measurement], space: StageRef, *, shared: bool = False
) -> StoredComparison:
    """The result without a comparison, if there is no baseline: the best configuration.

    A network is compared as a whole, so measuring each of its operators again would waste seconds.
    """
    best = best_of(measurements, shared=shared)
    if best is None:
        return StoredComparison(contenders=(), measurements=())
    contender = Contender(name=TUNED, stage=space, config=best.config)
    return StoredComparison(contenders=(contender,), measurements=(best,))


def compared(
    run: RunContext, task_run: TaskRun, baselines: Baselines, slot: TimeSlot
) -> StoredComparison:
    """Time a task's fastest configurations against its baselines, or read an earlier comparison.

    The comparison compiles and checks records of other runs. If a record turns out wrong, the next
    one takes its place.

    Args:
        run: the run.
        task_run: the task, which has ended.
        baselines: the task's baselines.
        slot: the slot of this comparison.

    Raises:
        PluginError: the runner breaks its contract.
        RunInterrupted: the run was asked to stop; nothing is kept.
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
                "a record of another run fails here and is not used",
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
    # A network that is delivered is checked with all of its kernels.
    recorded = best is not None and task_run.records.is_recorded(best.config)
    unchecked = recorded and not delivers(run.frontend)
    if not ours or not (baselines.contenders or unchecked):
        return uncompared(measurements, task_run.space_ref, shared=shared)
    contenders = (*ours, *baselines.contenders)
    stored = run.store.comparison(row)
    if stored is not None and stored.contenders == contenders:
        return stored
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
    # What came back after a request to stop may be cut short: compare again next time.
    run.interruption.check()
    run.store.set_comparison(row, comparison)
    return comparison


def winner(comparison: StoredComparison, *, shared: bool = False) -> tuple[int, ...] | None:
    """The tuned configuration that won, or None where none has a time.

    Args:
        comparison: of one task.
        shared: as for ``best_of``.
    """
    tuned = [attrs.evolve(measurement, config=config) for config, measurement in comparison.tuned]
    best = best_of(tuned, shared=shared)
    return None if best is None else best.config


def variants(
    comparison: StoredComparison, vendors: frozenset[str], best: tuple[int, ...] | None
) -> tuple[VariantResult, ...]:
    """The comparison as results: of the tuned configurations the winner alone.

    Args:
        comparison: of one task.
        vendors: names of the vendors' baselines.
        best: the winner.
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
"""Records that may take the place of one that turns out wrong; after them what is recommended where
nothing is measured."""


def interim_result(store: RecordStore, stored: StoredTask) -> OperatorResult:
    """The result of a task as its measurements are now; nothing is compared.

    Args:
        store: the run's.
        stored: one of its tasks.
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
    run: RunContext, task_runs: Sequence[TaskRun], baselines: Sequence[Baselines]
) -> list[OperatorResult]:
    """The results of all tasks, their winners compared one task after the other.

    Args:
        run: the run.
        task_runs: the tasks, which have ended.
        baselines: of each.
    """
    shared, before, results = shares_records(run.store), run.totals.seconds, []
    for number, (task_run, others) in enumerate(zip(task_runs, baselines, strict=True), 1):
        slot = TimeSlot.among(number, len(task_runs), before=before, now=run.totals.seconds)
        comparison = compared(run, task_run, others, slot)
        results.append(final_result(task_run, comparison, others, shared=shared))
    return results


def final_result(
    run: TaskRun, comparison: StoredComparison, baselines: Baselines, *, shared: bool = False
) -> OperatorResult:
    """The result of a task that has ended.

    Args:
        run: the task.
        comparison: of its winners with the baselines.
        baselines: the task's.
        shared: as for ``best_of``.
    """
    config = winner(comparison, shared=shared)
    leader = None if config is None else run.records.measured.get(config)
    # A comparison builds and checks again; the measurement itself takes its place without one.
    recorded = run.records.is_recorded(config) and any(
        measurement is leader for measurement in comparison.measurements
    )
    return attrs.evolve(
        _counted(run.records),
        config=config,
        alternatives=alternatives(run.tuner.measurements, config),
        best=None if config is None else run.space.decode(config),
        search_seconds=None if leader is None else leader.cost,
        max_relative_error=None if leader is None else leader.max_relative_error,
        guesses=_instead(run, config) if recorded or not run.records.measured else (),
        recorded=recorded,
        predicted=run.tuner.predicted and not run.records.measured,
        ended=run.ended,
        spending=run.spending,
        variants=variants(comparison, baselines.vendors, config),
    )


def _instead(run: TaskRun, chosen: Config | None) -> tuple[Config, ...]:
    """What may take the place of a winner that nobody has checked here, or of none."""
    valid = sorted((m for m in run.records.measured.values() if m.ok), key=lambda m: m.cost)
    further = (*(m.config for m in valid[: 1 + FURTHER]), *tuples(run.tuner.recommended()))
    return tuple(dict.fromkeys(config for config in further if config != chosen))


def _counted(records: TaskRecords) -> OperatorResult:
    """What can be said without a winner."""
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

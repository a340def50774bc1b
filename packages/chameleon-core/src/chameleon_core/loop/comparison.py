"""The end of a run: winners re-measured, interleaved with what a user would run instead."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import structlog

from chameleon_core.loop.guard import Guard
from chameleon_core.loop.result import TUNED, VariantResult
from chameleon_core.loop.stages import guard_of
from chameleon_core.measurement import Measurement
from chameleon_core.pipeline.schema import StageSpec
from chameleon_core.stages import Baseline, Contender, Runner, StageRef
from chameleon_core.store import StoredComparison
from chameleon_core.task import Task

log = structlog.get_logger()

NEARLY, ALTERNATIVES = 1.12, 2
"""What else may be tried in a network: so many configurations, at most this much slower."""

FINALISTS = 3
"""Configurations of a task that are compared: search timings rank the leaders only roughly."""


def stage_ref(spec: StageSpec) -> StageRef:
    """A chosen stage as data, for worker processes."""
    return StageRef(factory=spec.factory, options=spec.options_json)


@attrs.frozen(kw_only=True)
class Rivals:
    """A task's contenders besides its own winners.

    Attributes:
        contenders: every variant of every baseline that can compute the task.
        vendors: names of those that count as the vendor's.
    """

    contenders: tuple[Contender, ...] = ()
    vendors: frozenset[str] = frozenset()

    @classmethod
    def of(cls, task: Task, specs: Sequence[StageSpec]) -> Rivals:
        """Ask the pipeline's baselines.

        Raises:
            PluginError: a baseline breaks its contract.
        """
        contenders: list[Contender] = []
        vendors = set()
        for spec in specs:
            guard = guard_of(spec)
            with guard.call(f"say whether it computes task {task.name!r}"):
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
                Contender(name=spec.name, variant=variant, stage=stage_ref(spec))
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
    """Configurations nearly as fast as the chosen one and as different from it as can be.

    What is fastest alone need not be in a network, beside other kernels and their weights; siblings
    of the winner would share its fate.

    Args:
        measurements: of one task.
        chosen: the winner, or None where there is none.
    """
    costs = {m.config: m.cost for m in measurements if m.ok}
    if chosen not in costs or chosen is None:
        return ()
    limit = NEARLY * costs[chosen]
    near = sorted((cost, config) for config, cost in costs.items() if cost <= limit)
    rows = np.array([config for _, config in near])
    taken = [chosen]
    while len(taken) <= ALTERNATIVES:
        unlike = np.min([(rows != np.array(config)).sum(axis=1) for config in taken], axis=0)
        place = int(unlike.argmax())  # the fastest of those that differ most
        if not unlike[place]:
            break
        taken.append(near[place][1])
    return tuple(taken[1:])


def unrivalled(measurements: Sequence[Measurement], space: StageRef) -> StoredComparison:
    """What takes a comparison's place where there is nothing to compare with: the fastest one.

    Re-measuring would cost seconds for each operator of a network, which is what is compared there.
    """
    best = min((m for m in measurements if m.ok), key=lambda m: m.cost, default=None)
    if best is None:
        return StoredComparison(contenders=(), measurements=())
    contender = Contender(name=TUNED, stage=space, config=best.config)
    return StoredComparison(contenders=(contender,), measurements=(best,))


def compare(
    runner: Runner, guard: Guard, task: Task, contenders: tuple[Contender, ...]
) -> StoredComparison:
    """Time the contenders against each other.

    Raises:
        PluginError: the runner breaks its contract.
    """
    with guard.call(f"compare the winners of task {task.name!r}"):
        measurements = list(runner.compare(task, contenders))
    if len(measurements) != len(contenders) or not all(
        isinstance(measurement, Measurement) for measurement in measurements
    ):
        raise guard.broken(
            f"compared {len(contenders)} programs and returned {len(measurements)} measurements"
        )
    return StoredComparison(contenders=contenders, measurements=tuple(measurements))


def winner(comparison: StoredComparison) -> tuple[int, ...] | None:
    """The tuned configuration that won, or None where none has a time."""
    tuned = [
        (measurement.cost, contender.config)
        for contender, measurement in zip(
            comparison.contenders, comparison.measurements, strict=True
        )
        if contender.name == TUNED and measurement.ok
    ]
    return min(tuned, key=lambda pair: pair[0])[1] if tuned else None


def variants(comparison: StoredComparison, vendors: frozenset[str]) -> tuple[VariantResult, ...]:
    """The comparison as results: of the tuned configurations the winner alone."""
    best = winner(comparison)
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
        for contender, measurement in zip(
            comparison.contenders, comparison.measurements, strict=True
        )
        if contender.name != TUNED or contender.config == best
    )

"""The result of one operator, at the end of its run and while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from chameleon_core.events.records import Event
from chameleon_core.loop.end.choice import best_of
from chameleon_core.loop.end.comparison import (
    Baselines,
    TimeSlot,
    alternatives,
    compared,
    variants,
    winner,
)
from chameleon_core.loop.end.kept_records import shares_records
from chameleon_core.loop.end.variants import TUNED, VariantResult
from chameleon_core.loop.interruption import Interruption
from chameleon_core.loop.round.batch import Config, tuples
from chameleon_core.loop.round.measure import CheckedRunner
from chameleon_core.loop.round.records import TaskRecords
from chameleon_core.loop.round.task_run import TaskRun
from chameleon_core.spending import Spending
from chameleon_core.store import RecordStore, StoredComparison, StoredTask


@attrs.frozen(kw_only=True)
class OperatorResult:
    """The outcome of one task. Times are in seconds, None where there is none.

    Attributes:
        name: the task's name.
        task: the task as JSON values.
        space: name of the space provider.
        fingerprint: the design space's.
        config: knob indices of the winner, or None where nothing succeeded.
        alternatives: other configurations nearly as fast; what else a network may be tried with.
        best: the winner decoded, or None.
        search_seconds: the winner's cost when it was found; ``tuned_seconds`` is the later,
            interleaved measurement.
        max_relative_error: of the winner's outputs (``Measurement.max_relative_error``).
        guesses: what else there is where the winner was not checked here, the best ones first.
        recorded: whether the winner was built, checked and timed in another run alone.
        predicted: whether nothing was measured and the first of ``guesses`` is what the cost model,
            trained beforehand, predicts to be best.
        measurements: configurations measured, failures included.
        origins: how many came from where (``loop.round.batch.Origin``), as far as recorded.
        failed: failures by kind.
        failure: the first failure of the most frequent kind in words, or None.
        ended: why it got no further batch, as half a sentence; None where an earlier version did
            not say.
        spending: where the wall-clock went.
        variants: the final comparison.
    """

    name: str
    task: Mapping[str, Any]
    space: str
    fingerprint: str
    config: tuple[int, ...] | None = None
    alternatives: tuple[tuple[int, ...], ...] = ()
    best: Mapping[str, Any] | None = None
    search_seconds: float | None = None
    max_relative_error: float | None = None
    guesses: tuple[tuple[int, ...], ...] = ()
    recorded: bool = False
    predicted: bool = False
    measurements: int = 0
    origins: Mapping[str, int] = attrs.field(factory=dict)
    failed: Mapping[str, int] = attrs.field(factory=dict)
    failure: str | None = None
    ended: str | None = None
    spending: Spending = attrs.field(factory=Spending)
    variants: tuple[VariantResult, ...] = ()

    def seconds_of(self, name: str) -> float | None:
        """The best time of a baseline, over its variants."""
        return _fastest(v.seconds for v in self.variants if v.name == name)

    @property
    def tuned_seconds(self) -> float | None:
        """The winner's time in the final comparison."""
        return self.seconds_of(TUNED)

    @property
    def untuned_seconds(self) -> float | None:
        """The fastest baseline that is no vendor's."""
        return _fastest(v.seconds for v in self.variants if v.name != TUNED and not v.vendor)

    @property
    def vendor_seconds(self) -> float | None:
        """The fastest of the vendors' baselines."""
        return _fastest(v.seconds for v in self.variants if v.vendor)

    @property
    def ratio(self) -> float | None:
        """Vendor's time over the tuned one: above 1 the tuned kernel is faster."""
        tuned, vendor = self.tuned_seconds, self.vendor_seconds
        return vendor / tuned if tuned and vendor else None

    @property
    def gflops(self) -> float | None:
        """Speed of the tuned kernel in GFLOP/s."""
        tuned = self.tuned_seconds
        return float(self.task["flop"]) / tuned / 1e9 if tuned else None

    def to_json(self) -> dict[str, Any]:
        """What ``run --json`` prints of an operator, and what ``from_json`` needs."""
        return {
            "name": self.name,
            "untuned_seconds": self.untuned_seconds,
            "tuned_seconds": self.tuned_seconds,
            "vendor_seconds": self.vendor_seconds,
            "ratio": self.ratio,
            "gflops": self.gflops,
            "measurements": self.measurements,
            "origins": dict(self.origins),
            "failed": dict(self.failed),
            "failure": self.failure,
            "ended": self.ended,
            "wall_seconds": self.spending.total,
            "spent_seconds": attrs.asdict(self.spending),
            "search_seconds": self.search_seconds,
            "max_relative_error": self.max_relative_error,
            "config": None if self.config is None else list(self.config),
            "alternatives": [list(config) for config in self.alternatives],
            "guesses": [list(config) for config in self.guesses],
            **({"recorded": True} if self.recorded else {}),
            **({"predicted": True} if self.predicted else {}),
            "best": None if self.best is None else dict(self.best),
            "space": self.space,
            "fingerprint": self.fingerprint,
            "task": dict(self.task),
            "variants": [attrs.asdict(variant) for variant in self.variants],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> OperatorResult:
        """The inverse of ``to_json``."""
        config, spent = value["config"], value["spent_seconds"]
        # Folders of earlier versions do not have all of them.
        same = {name: value[name] for name in attrs.fields_dict(cls) if name in value}
        made = {
            "config": None if config is None else tuple(config),
            "alternatives": tuple(tuple(one) for one in value.get("alternatives", ())),
            "guesses": tuple(tuple(one) for one in value.get("guesses", ())),
            "variants": tuple(VariantResult(**variant) for variant in value["variants"]),
        }
        return cls(**{**same, **made, "spending": Spending(**spent)})


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
    runs: Sequence[TaskRun],
    baselines: Sequence[Baselines],
    *,
    runner: CheckedRunner,
    store: RecordStore,
    interruption: Interruption,
    publish: Callable[[Event], None],
    delivers: bool,
    seconds: Callable[[], float],
) -> list[OperatorResult]:
    """The results of all tasks, their winners compared one task after the other.

    Args:
        runs: the tasks, which have ended.
        baselines: of each.
        runner: as for ``compared``.
        store: as for ``compared``.
        interruption: as for ``compared``.
        publish: as for ``compared``.
        delivers: as for ``compared``.
        seconds: wall-clock of the run until now.
    """
    shared, before, found = shares_records(store), seconds(), []
    for number, (run, others) in enumerate(zip(runs, baselines, strict=True), 1):
        comparison = compared(
            run,
            others,
            runner=runner,
            store=store,
            interruption=interruption,
            publish=publish,
            delivers=delivers,
            place=TimeSlot.among(number, len(runs), before=before, now=seconds()),
        )
        found.append(final_result(run, comparison, others, shared=shared))
    return found


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
    found = None if config is None else run.records.measured.get(config)
    # A comparison builds and checks again; the measurement itself takes its place without one.
    recorded = run.records.is_recorded(config) and any(
        one is found for one in comparison.measurements
    )
    return attrs.evolve(
        _counted(run.records),
        config=config,
        alternatives=alternatives(run.tuner.measurements, config),
        best=None if config is None else run.space.decode(config),
        search_seconds=None if found is None else found.cost,
        max_relative_error=None if found is None else found.max_relative_error,
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


def _fastest(seconds: Any) -> float | None:
    return min((value for value in seconds if value is not None), default=None)


__all__ = ["OperatorResult", "compared_results", "final_result", "interim_result"]

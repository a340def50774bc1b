"""Suites of spaces, runners, baselines, rivals, record databases, and of the stages that search."""

from __future__ import annotations

import math
import tempfile
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from chameleon_core.api import ResolvedPipeline
from chameleon_core.plugin_api import (
    Contender,
    FailureKind,
    MeasureJob,
    Measurement,
    RecordDatabase,
    Rival,
    Scheduler,
    StageRef,
    Task,
)

from chameleon_testing import conformance as checks
from chameleon_testing._generators import SEED, trial
from chameleon_testing.suites.base import StageSuite, TaskSuite

_SAMPLE = 4
"""Number of random configurations to measure."""


class SpaceSuite(TaskSuite):
    """Checks of a space provider on ``task``.

    Attributes:
        builds: whether the provider's configurations are built in this process. False if only a
            special runner can build them.
    """

    kind = "spaces"
    builds: ClassVar[bool] = True

    def test_space(self) -> None:
        """A task's design space is the same in every process, and has legal configurations."""
        checks.check_space_provider(self.make, self.given("task", "a task"))

    def test_kernel(self) -> None:
        """The first guess, or else a random configuration, computes the reference's outputs."""
        task = self.given("task", "a task")
        if not self.builds:
            raise unittest.SkipTest("its configurations are not built in this process")
        provider = self.make()
        space = provider.design_space(task)
        drawn = space.sample(1, np.random.default_rng(SEED))
        (config, *_) = np.concatenate([space.first_guesses, drawn]).tolist()
        builder = provider.builder(task, threads=1)
        where = f"{self.where}, configuration {config}"
        checks.check_kernel(builder, builder.build(config), where=where)


class RunnerSuite(TaskSuite):
    """Checks of a runner.

    Attributes:
        job: the job to measure. Some of its configurations may fail.
    """

    kind = "runners"
    job: ClassVar[MeasureJob | None] = None

    @classmethod
    def subjects(cls, pipeline: ResolvedPipeline) -> dict[str, Any]:
        subjects = super().subjects(pipeline)
        if task := subjects.get("task"):
            space = pipeline.space.create().design_space(task)
            configs = space.sample(_SAMPLE, np.random.default_rng(SEED)).tolist()
            stage = StageRef.of(pipeline.space)
            subjects["job"] = MeasureJob(task=task, space=stage, configs=list(map(tuple, configs)))
        return subjects

    def test_measurements(self) -> None:
        """The runner returns one measurement per configuration: times, or a failure's message."""
        checks.check_runner(self.make, self.given("job", "configurations"))

    def test_comparison(self) -> None:
        """The runner times contenders in turns, and returns a measurement for each, in order."""
        job = self.given("job", "configurations")
        configs = job.configs[:2]
        with self.make() as runner:
            runner.prepare(job.space)
            measurements = runner.compare(
                job.task,
                [Contender(name="tuned", stage=job.space, config=config) for config in configs],
            )
        same = [measurement.config for measurement in measurements] == configs
        problem = "a comparison gives other measurements than one per contender, in order"
        assert same, f"{self.where}: {problem}"

    def test_conditions(self) -> None:
        """The runner describes itself in JSON, and two of its properties are valid numbers.

        These are the batch size and the number of devices that time candidates during a search
        (``lanes``).
        """
        with self.make() as runner:
            checks.after_json(runner.describe(), f"{self.where}: describe()")
            checks.after_json(runner.conditions(), f"{self.where}: conditions()")
            assert runner.batch_size >= 1, f"{self.where}: a batch of {runner.batch_size}"
            assert runner.lanes >= 0, f"{self.where}: has {runner.lanes} lanes"
            runner.close()


class BaselineSuite(TaskSuite):
    """Checks of a baseline on ``task``."""

    kind = "baselines"

    def test_variants(self) -> None:
        """Each variant of the baseline computes the task's outputs, and reports positive times."""
        checks.check_baseline(self.make, self.given("task", "a task"))


class RivalSuite(TaskSuite):
    """Checks of a rival, which tunes ``task`` with few measurements.

    Attributes:
        measurements: the largest number of measurements that the rival may make.
        wall_seconds: the wall-clock time in seconds that the rival may take.
    """

    kind = "rivals"
    measurements: ClassVar[int] = 4
    wall_seconds: ClassVar[float] = 60.0

    def test_trace(self) -> None:
        """The rival's trace rises in time, falls in cost, and stays within the limits."""
        limits = {"measurements": self.measurements, "wall_seconds": self.wall_seconds}
        trace = self.make().tune(self.given("task", "a task"), **limits, seed=SEED)
        with trial(self.where):
            self._check(trace)

    def _check(self, trace: object) -> None:
        kind = type(trace).__name__
        assert isinstance(trace, Rival.Trace), f"{kind} instead of a Rival.Trace"
        curve = (trace.at_seconds, trace.measurements, trace.best_seconds)
        lengths = {len(series) for series in curve}
        assert len(lengths) == 1 and lengths != {0}, (
            f"at_seconds, measurements and best_seconds have {sorted(lengths)} points, "
            "not one each for every point"
        )
        times, counts, best = (np.asarray(series, float) for series in curve)
        assert (times > 0).all(), "a point at or before its start"
        assert (np.diff(times) > 0).all(), "its points do not rise in time"
        assert (np.diff(counts) >= 0).all(), "it takes measurements back"
        limit = f"not the {self.measurements} it may make"
        assert counts[-1] <= self.measurements, f"{counts[-1]:.0f} measurements, {limit}"
        assert (np.diff(best) <= 0).all(), "its best time grows"
        assert (best > 0).all(), "its best time is not positive"
        assert 0 <= trace.failed <= counts[-1], "more failures than measurements"
        final = trace.final_seconds
        sensible = final is None or (math.isfinite(final) and final > 0)
        assert sensible, f"its final time is {final}; None says that there is none"
        checks.after_json(dict(trace.details), "the content of its details")


class RecordDatabaseSuite(StageSuite):
    """Checks of a record database, each with a new database.

    Attributes:
        location: the name of the database's file or folder, if its record has an option for it
            (``place_option``).
        persistent: whether another object with the same options finds the records that were added.
    """

    kind = "record_databases"
    location: ClassVar[str] = "records.sqlite"
    persistent: ClassVar[bool] = True

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """A context with a new, empty database, and a function that opens the same one again."""
        with tempfile.TemporaryDirectory() as folder:
            option = getattr(self.registered, "place_option", "")
            options = {option: str(Path(folder) / self.location)} if option else {}
            database = self.make(**options)
            if not database.writable:
                database.close()
                raise unittest.SkipTest("nothing can be added to it")
            yield database, lambda: self.make(**options)
            database.close()

    def test_what_was_added(self) -> None:
        """Records are found under their key, also after closing, and under no other key."""
        key, records = _key(64), [_record(1, 1e-3), _record(2, None)]
        with self.opened() as (database, open_again), trial(self.where):
            assert database.place, "it does not say where it is ('place')"
            assert not database.keys(), "a new one has keys"
            assert not database.records(key), "it has records of an unknown key"
            changed = database.add({key: records})
            assert changed == len(records), f"adding 2 records changed {changed}"
            again = database
            if self.persistent:
                database.close()
                database.close()
                again = open_again()
            stored = sorted(again.records(key), key=lambda record: record.measurement.config)
            assert stored == records, "it gives back other records than were added"
            assert list(again.keys()) == [key], "it has other keys than added"
            assert not again.records(_key(128)), "it mixes up two keys"
            again.close()

    def test_order(self) -> None:
        """The database keeps the better of two records, whichever is added first.

        Adding the better record again changes nothing.
        """
        key, slow, fast = _key(64), _record(1, 2e-3), _record(1, 1e-3)
        for records in ((fast, slow), (slow, fast)):
            with self.opened() as (database, _), trial(self.where):
                for record in records:
                    database.add({key: [record]})
                stays = list(database.records(key)) == [fast]
                assert stays, (
                    "of two records of a configuration not the one of the lower rank stays"
                )
                again = database.add({key: [fast]})
                assert again == 0, f"adding a record again changed {again}"

    def test_family(self) -> None:
        """``keys(like)`` returns the keys of one family, in an order that follows from the keys."""
        keys, orders = [_key(64), _key(128), _key(64, target="other")], []
        with trial(self.where):
            for order in (keys, keys[::-1]):
                with self.opened() as (database, _):
                    for key in order:
                        database.add({key: [_record(1, 1e-3)]})
                    orders.append(list(database.keys()))
                    family = {key.digest for key in database.keys(_key(32))}
                same = family == {key.digest for key in keys[:2]}
                assert same, "keys(like) gives other keys than those of its family"
            assert orders[0] == orders[1], "its keys come in the order of their adding"


def _key(size: int, *, target: str = "none") -> RecordDatabase.Key:
    names = {"operator": "none", "space": "conformance", "fingerprint": "0" * 16}
    arguments, conditions = {"size": size}, {"threads": 1}
    return RecordDatabase.Key(**names, target=target, arguments=arguments, conditions=conditions)


def _record(tile: int, seconds: float | None) -> RecordDatabase.Record:
    outcome: dict[str, Any] = {"failure": FailureKind.RUN_ERROR, "message": "as scripted"}
    outcome = outcome if seconds is None else {"seconds": (seconds,)}
    measurement = Measurement(config=(0, tile), **outcome)
    return RecordDatabase.Record(measurement=measurement, knobs={"tile": tile}, measured_at=1.0)


class ExplorerSuite(StageSuite):
    """Checks of an explorer.

    Attributes:
        draws: whether the explorer draws random numbers. False for an explorer whose proposals are
            the same for every seed.
    """

    kind = "explorers"
    draws: ClassVar[bool] = True

    def test_proposals(self) -> None:
        """The explorer proposes legal, distinct, unvisited configurations, the same for a seed."""
        checks.check_explorer(self.make, draws=self.draws)


class CostModelSuite(StageSuite):
    """Checks of a cost model."""

    kind = "cost_models"

    def test_predictions(self) -> None:
        """The model learns from measurements and failures, and scores each row separately."""
        checks.check_cost_model(self.make)


class SamplerSuite(StageSuite):
    """Checks of a sampler."""

    kind = "samplers"

    def test_choices(self) -> None:
        """The sampler chooses rows from many, few or no candidates, the same for a seed."""
        checks.check_sampler(self.make)


class SynthesizerSuite(StageSuite):
    """Checks of a synthesizer."""

    kind = "synthesizers"

    def test_batches(self) -> None:
        """The synthesizer returns legal, distinct, unvisited rows, the same for a seed."""
        checks.check_synthesizer(self.make)


_BATCH = 8
_ROUNDS = 5
"""Number of batches after which a task is done."""

_COSTS = (1e-3, 5e-4, 2e-3)
"""Cost of each task after its first batch, in seconds; each further batch saves an eighth."""


class SchedulerSuite(StageSuite):
    """Checks of a scheduler."""

    kind = "schedulers"

    def test_choices(self) -> None:
        """The scheduler names waiting tasks until none waits, in the same order for a seed."""
        for at_once in (1, 2):
            with trial(f"{self.where}, {at_once} tasks at once"):
                once, again = (self._run(_COSTS, at_once) for _ in range(2))
                assert once == again, "two runs of one seed differ"
                assert once, "it ends the run before any task had a batch"

    def test_one_task(self) -> None:
        """The scheduler can schedule a run of one task, and a run whose tasks all fail."""
        with trial(self.where):
            assert self._run(_COSTS[:1]), "one task gets no batch"
            assert self._run((np.inf, np.inf)), "tasks that fail get no batch at all"

    def test_end(self) -> None:
        """The scheduler names no task if all tasks are done."""
        states = _states([[1e-3] * _ROUNDS] * 2)
        chosen = self.make(_context(states)).next_task(states)
        assert chosen is None, f"{self.where}: it names task {chosen}, but all are done"

    def _run(self, costs: tuple[float, ...], at_once: int = 1) -> list[int]:
        """The tasks that got a batch, in order."""
        histories: list[list[float]] = [[] for _ in costs]
        scheduler = self.make(_context(_states(histories)))
        flying: list[int] = []
        order: list[int] = []
        for _ in range(2 * len(costs) * _ROUNDS + 1):
            states = _states(histories, flying)
            chosen = scheduler.next_task(states) if len(flying) < at_once else None
            if chosen is not None and chosen not in flying:
                index = isinstance(chosen, int | np.integer) and 0 <= chosen < len(costs)
                assert index, f"it names {chosen!r}, which is no task's index"
                assert states[chosen].waiting, f"it names task {chosen}, which is done"
                flying.append(chosen)
                order.append(int(chosen))
            elif flying:
                ended = flying.pop(0)
                histories[ended].append(costs[ended] * 0.875 ** len(histories[ended]))
            else:
                return order
        raise AssertionError("it goes on when all tasks are done")


def _states(
    histories: list[list[float]], flying: list[int] | None = None
) -> list[Scheduler.TaskState]:
    """The states of tasks with these costs after each batch."""
    return [
        Scheduler.TaskState(
            task=Task(name=f"op{i}", operator="", arguments={"i": i}, target="", flop=1e9),
            rounds=len(history),
            measured=len(history) * _BATCH,
            history=tuple(history),
            done=len(history) >= _ROUNDS,
            in_flight=i in (flying or ()),
        )
        for i, history in enumerate(histories)
    ]


def _context(states: list[Scheduler.TaskState]) -> Scheduler.Context:
    tasks, rng = [state.task for state in states], np.random.default_rng(SEED)
    return Scheduler.Context(tasks=tasks, rng=rng, batch_size=_BATCH)

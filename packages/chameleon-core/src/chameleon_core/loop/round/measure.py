"""The run's runner: started once, asked for measurements, and checked in all that it says."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from chameleon_core.loop.interruption import Interruption
from chameleon_core.loop.plugin_contract import PluginContract, contract_of
from chameleon_core.loop.round.batch import Batch
from chameleon_core.measurement import Measurement
from chameleon_core.pipeline.schema import StageSpec
from chameleon_core.stages import Arrival, ComparisonPlan, Contender, MeasureJob, Runner, StageRef
from chameleon_core.stages.streams import JobAfterJob
from chameleon_core.task import Task


class CheckedRunner:
    """A started runner that may break its contract or be interrupted.

    Args:
        runner: entered by whoever made it.
        contract: names it when it breaks its contract.
        interruption: the request to stop.

    Attributes:
        live: ``Runner.measures_hardware``.
        now: ``Runner.now``.
        disturbance: ``Runner.disturbance``.
    """

    def __init__(
        self, runner: Runner, contract: PluginContract, interruption: Interruption
    ) -> None:
        self.measures_hardware = runner.measures_hardware
        self.now = runner.now
        self.disturbance = runner.disturbance
        self._runner = runner
        self._contract = contract
        self._interruption = interruption

    @property
    def batch_size(self) -> int:
        """Configurations per batch that keep the runner busy.

        Raises:
            PluginError: the runner says something else than a positive number.
        """
        with self._contract.call("say how many configurations keep it busy"):
            size = self._runner.batch_size
        if not isinstance(size, int) or size < 1:
            raise self._contract.broken(f"has the batch size {size!r}")
        return size

    @property
    def lanes(self) -> int:
        """``Runner.lanes``, checked.

        Raises:
            PluginError: the runner says something else than a number from 0.
        """
        with self._contract.call("say how many candidates it times beside a search"):
            lanes = self._runner.lanes
        if not isinstance(lanes, int) or lanes < 0:
            raise self._contract.broken(f"has {lanes!r} lanes")
        return lanes

    def describe(self) -> dict[str, Any]:
        """``Runner.describe``.

        Raises:
            PluginError: the runner raises.
        """
        with self._contract.call("describe itself"):
            return self._runner.describe()

    def conditions(self) -> Mapping[str, Any] | None:
        """``Runner.conditions``; None where what it measures is recorded already.

        Raises:
            PluginError: the runner raises, or says something else than JSON values.
        """
        if not self.measures_hardware:
            return None
        with self._contract.call("say what its times depend on"):
            found = self._runner.conditions()
            if found is not None:
                json.dumps(dict(found))
        return found

    @property
    def threads(self) -> int:
        """Threads that kernels are measured with."""
        return int(self.describe().get("threads") or 1)

    def measure(self, job: MeasureJob) -> list[Measurement]:
        """Measure a job that belongs to no task of the run.

        Raises:
            PluginError: the runner raises, invents, repeats or leaves out a measurement.
            RunInterrupted: the run is to stop.
        """
        batch = Batch(job.configs, stored={}, origins={})
        with self.stream() as stream:
            stream.submit(job, batch)
            while stream.expected:
                stream.poll()
            stream.rest()
        return batch.measurements

    def stream(self, *, side_by_side: bool = False) -> CheckedStream:
        """Measure jobs that are submitted one by one.

        Args:
            side_by_side: whether jobs may overlap, if the runner can; otherwise one comes after
                the other whatever it can.

        Raises:
            PluginError: the runner does not start measuring.
            RunInterrupted: the run is to stop.
        """
        self._interruption.check()
        return CheckedStream(
            self._runner, self._contract, self._interruption, side_by_side=side_by_side
        )

    def compare(
        self, task: Task, contenders: Sequence[Contender], plan: ComparisonPlan
    ) -> tuple[Measurement, ...]:
        """Time contenders against each other, one measurement each.

        Raises:
            PluginError: the runner breaks its contract.
        """
        with self._contract.call(f"compare the winners of task {task.name!r}"):
            self._runner.plan_comparison(plan)
            measurements = tuple(self._runner.compare(task, contenders))
        if len(measurements) != len(contenders) or not all(
            isinstance(measurement, Measurement) for measurement in measurements
        ):
            raise self._contract.broken(
                f"compared {len(contenders)} programs and returned {len(measurements)} measurements"
            )
        return measurements


class CheckedStream:
    """The measurements of batches that a runner has. A context manager.

    Args:
        runner: entered by whoever made it.
        contract: names it when it breaks its contract.
        interruption: the request to stop.
        side_by_side: as in ``CheckedRunner.stream``.
    """

    def __init__(
        self,
        runner: Runner,
        contract: PluginContract,
        interruption: Interruption,
        *,
        side_by_side: bool,
    ) -> None:
        self._contract = contract
        self._interruption = interruption
        self._now = runner.now
        # A runner that does not know how to be interrupted is stopped between measurements.
        self._deaf = type(runner).interrupt is Runner.interrupt
        self._batches: dict[MeasureJob, Batch] = {}
        with contract.call("start measuring"):
            self._stream = runner.stream() if side_by_side else JobAfterJob(runner.measure)

    @property
    def expected(self) -> bool:
        """Whether a measurement is still to come."""
        return bool(self._batches)

    def submit(self, job: MeasureJob, batch: Batch) -> None:
        """Have a job measured.

        Args:
            job: what is missing of the batch.
            batch: hears what arrives.

        Raises:
            PluginError: the runner raises.
        """
        batch.submit(self._now())
        with self._contract.call(f"take task {job.task.name!r} on"):
            self._stream.submit(job)
        self._batches[job] = batch

    def poll(self, timeout: float | None = None) -> tuple[Batch, Measurement] | None:
        """The next measurement; None where none came in time, or somebody woke the runner.

        Args:
            timeout: in seconds of the runner's clock; None for no limit.

        Raises:
            PluginError: the runner raises, invents, repeats or leaves out a measurement.
            RunInterrupted: the run is to stop, and what was in flight has come.
        """
        if self._deaf:
            self._interruption.check()
        with self._contract.call(f"measure {self._tasks}"):
            arrival = self._stream.poll(timeout)
            over = arrival is None and not self._stream.busy
        if arrival is not None:
            return self._arrived(arrival)
        if over and self._batches:
            self._interruption.check()
            left_out = sum(len(batch.missing) for batch in self._batches.values())
            asked = sum(len(job.configs) for job in self._batches)
            raise self._contract.broken(f"left out {left_out} of {asked} measurements")
        return None

    def rest(self) -> None:
        """Let the runner come to its end once it has measured everything.

        Raises:
            PluginError: the runner raises, or has yet another measurement.
        """
        with self._contract.call("finish measuring"):
            while not self._batches and self._stream.busy:
                arrival = self._stream.poll()
                if arrival is not None:
                    self._arrived(arrival)

    @property
    def _tasks(self) -> str:
        names = ", ".join(repr(job.task.name) for job in self._batches)
        return f"task {names}" if len(self._batches) == 1 else f"tasks {names}"

    def _arrived(self, arrival: object) -> tuple[Batch, Measurement]:
        if not isinstance(arrival, Arrival):
            raise self._contract.broken(f"streamed a {type(arrival).__name__}, not an Arrival")
        measurement: object = arrival.measurement
        if not isinstance(measurement, Measurement):
            kind = type(measurement).__name__
            raise self._contract.broken(f"yielded a {kind}, not a Measurement")
        batch = self._batches.get(arrival.job)
        if batch is None or measurement.config not in batch.missing:
            raise self._contract.broken(
                f"yielded a measurement of {measurement.config} that was not asked for, "
                "or a second one"
            )
        if not all(0.0 < seconds < math.inf for seconds in measurement.seconds):
            raise self._contract.broken(f"yielded the times {measurement.seconds}")
        batch.arrive(measurement, self._now())
        if not batch.missing:
            del self._batches[arrival.job]
        return batch, measurement

    def wake(self) -> None:
        """Make ``poll`` return soon; from any thread."""
        self._stream.wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._contract.call("stop measuring"):
            self._stream.close()


@contextlib.contextmanager
def started(
    spec: StageSpec,
    space: StageRef,
    interruption: Interruption,
    described: Callable[[dict[str, Any]], None],
) -> Iterator[CheckedRunner]:
    """Start a runner, and stop it at the end of the context.

    Its workers import what they need while tasks and spaces are made in this process.

    Args:
        spec: the pipeline's runner.
        space: what candidates are built with.
        interruption: passed on to the runner.
        described: called with the runner's description of itself, at its start and at its end.

    Raises:
        PluginError: it does not start, or not stop.
    """
    contract = contract_of(spec)
    stack = contextlib.ExitStack()
    try:
        with contract.call("start"):
            runner: Runner = spec.create()
            runner.prepare(space)
            stack.enter_context(runner)
            interruption.soft = runner.interrupt
            interruption.hard = runner.close
            described(runner.describe())
        checked = CheckedRunner(runner, contract, interruption)
        yield checked
        # A fleet knows its devices only when it has reached them.
        described(checked.describe())
    finally:
        interruption.soft = interruption.hard = None
        with contract.call("stop"):
            stack.close()

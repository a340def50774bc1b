"""The pipeline's runner, made when it is needed, and what is asked of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Self

import attrs

from chameleon_core.loop.arrivals import Arrivals
from chameleon_core.loop.guard import Guard
from chameleon_core.loop.interruption import Interruption
from chameleon_core.measurement import Measurement
from chameleon_core.pipeline.schema import StageSpec
from chameleon_core.stages import MeasureJob, Runner, StageRef

Config = tuple[int, ...]


class LazyRunner:
    """The pipeline's runner, made and entered when the first measurement is needed.

    A finished run that is only looked at again never starts a worker.

    Args:
        spec: the pipeline's runner.
        space: what candidates are built with.
        interruption: passed on to the runner.
        started: called with the runner's description of itself, when it starts and at the end.
    """

    def __init__(
        self,
        spec: StageSpec,
        space: StageRef,
        interruption: Interruption,
        started: Callable[[dict[str, object]], None],
    ) -> None:
        self.guard = Guard(noun="runner", name=spec.name)
        self._spec = spec
        self._space = space
        self._interruption = interruption
        self._started = started
        self._stack = contextlib.ExitStack()
        self._runner: Runner | None = None

    def get(self) -> Runner:
        """The runner, entered."""
        if self._runner is None:
            with self.guard.call("start"):
                runner: Runner = self._spec.create()
                runner.prepare(self._space)
                self._stack.enter_context(runner)
                self._interruption.soft = runner.interrupt
                self._interruption.hard = runner.close
                self._runner = runner
                self._started(runner.describe())
        return self._runner

    @property
    def batch_size(self) -> int:
        """Configurations per batch that keep the runner busy.

        Raises:
            PluginError: the runner says something else than a positive number.
        """
        runner = self.get()
        with self.guard.call("say how many configurations keep it busy"):
            size = runner.batch_size
        if not isinstance(size, int) or size < 1:
            raise self.guard.broken(f"has the batch size {size!r}")
        return size

    @property
    def lanes(self) -> int:
        """``Runner.lanes``, checked.

        Raises:
            PluginError: the runner says something else than a number from 0.
        """
        runner = self.get()
        with self.guard.call("say how many candidates it times beside a search"):
            lanes = runner.lanes
        if not isinstance(lanes, int) or lanes < 0:
            raise self.guard.broken(f"has {lanes!r} lanes")
        return lanes

    def now(self) -> float:
        """Seconds on the runner's clock, or on this machine's while there is no runner.

        A runner's clock may only run ahead of this machine's by what it measured, so the two
        agree at the moment when it starts.
        """
        return time.perf_counter() if self._runner is None else self._runner.now()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._runner is not None and kind is None:
            # A fleet knows its devices only when it has reached them.
            with self.guard.call("describe itself"):
                self._started(self._runner.describe())
        self._interruption.soft = self._interruption.hard = None
        with self.guard.call("stop"):
            self._stack.close()


@attrs.frozen(kw_only=True)
class Measuring:
    """Measures batches through a runner that may break its contract or be interrupted."""

    runner: LazyRunner
    interruption: Interruption

    @property
    def live(self) -> bool:
        """Whether measurements cost something to repeat (``Runner.live``)."""
        return self.runner.get().live

    def measure(self, job: MeasureJob) -> Iterator[Measurement]:
        """Yield one measurement per configuration of the job, as they arrive.

        Raises:
            PluginError: the runner raises, invents, repeats or leaves out a measurement.
            RunInterrupted: the run is to stop; what was in flight has been yielded before.
        """
        with self.arrivals() as arrivals:
            arrivals.submit(job)
            while arrivals.expected:
                arrival = arrivals.poll()
                if arrival is not None:
                    yield arrival.measurement
            arrivals.rest()

    def arrivals(self, *, side_by_side: bool = False) -> Arrivals:
        """What comes of jobs that are submitted one by one.

        Args:
            side_by_side: whether jobs may overlap, if the runner can.

        Raises:
            PluginError: the runner does not start.
            RunInterrupted: the run is to stop.
        """
        self.interruption.check()
        runner, guard = self.runner.get(), self.runner.guard
        # A request during the start found no runner to pass it on to.
        self.interruption.check()
        return Arrivals(runner, guard, self.interruption, side_by_side=side_by_side)


def plain(configs: Sequence[Sequence[int]]) -> list[Config]:
    """Rows of an array as tuples of Python ints."""
    return [tuple(int(index) for index in row) for row in configs]

"""The contract of what measures: runners, and what they are given."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

from chameleon_core.measurement import Measurement
from chameleon_core.stages.disturbance import Disturbance
from chameleon_core.stages.jobs import ComparisonPlan, Contender, MeasureJob, StageRef
from chameleon_core.stages.streams import JobAfterJob, MeasureStream
from chameleon_core.task import Task


class Runner(ABC):
    """Builds, runs, checks and times. A context manager; workers start when it is entered.

    Attributes:
        live: whether it times real hardware, so that nothing else should run beside it, and
            each measurement is on disk when it arrives; False where recorded results are looked
            up, which cost nothing to repeat: then a batch is committed as one transaction.
    """

    measures_hardware: ClassVar[bool] = True

    @property
    def batch_size(self) -> int:
        """Configurations per batch that keep it busy; what a pipeline gets that names no number.

        A search learns between batches, so fewer are better, as long as nothing stands idle.
        """
        return 16

    @property
    def lanes(self) -> int:
        """Candidates it times at once while a search goes on beside, such as devices elsewhere.

        0 where a search would disturb what is timed. Then one task after the other is tuned,
        otherwise as many at once as keep the lanes busy. Asked when the runner was entered.
        """
        return 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def prepare(self, space: StageRef) -> None:  # noqa: B027 - optional hook
        """Take note of what candidates will be built with, before the runner is entered.

        Workers can import it while the parent still makes tasks and design spaces.
        """

    @abstractmethod
    def measure(self, job: MeasureJob) -> Iterator[Measurement]:
        """Yield exactly one measurement per configuration, each as soon as it is known.

        A bad candidate is a failed measurement, never an exception. The order
        may differ from the job's; ``Measurement.config`` tells which it is.

        Raises:
            PluginError: the space or the reference outputs fail for every candidate alike.
            TargetError: no device that there is can run the task's target.
        """

    def stream(self) -> MeasureStream:
        """Measure several jobs side by side; closed before anything else is asked of the runner.

        By default they are measured one after the other. A runner of many devices overlaps them,
        so that no device waits for the last candidate of a batch.
        """
        return JobAfterJob(self.measure)

    def plan_comparison(self, plan: ComparisonPlan) -> None:  # noqa: B027 - optional hook
        """Called right before ``compare``: how long that may take, and whom to tell how far it is.

        Contenders are timed less often where time is short, but never so rarely that their
        medians say nothing; building takes as long as it takes.
        """

    @abstractmethod
    def compare(self, task: Task, contenders: Sequence[Contender]) -> list[Measurement]:
        """Time contenders against each other, interleaved, one measurement each, in order.

        Raises:
            PluginError: no contender can compute the expected outputs.
            TargetError: as for ``measure``.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What does the measuring, for the record: device, threads, versions (JSON values)."""

    def conditions(self) -> Mapping[str, Any] | None:
        """What its times depend on beside task and space, as JSON values; None keeps them its own.

        Threads, the compiler's version, the state of the caches: where all of these are the same,
        another machine like this one need not measure again (``RecordKey.conditions``). Nothing
        that tells one machine from another like it belongs here. Asked when the runner was entered.
        """
        return None

    def disturbance(self) -> Disturbance:
        """Tell how much its timing was disturbed since it was made; nothing unless it can."""
        return Disturbance()

    def now(self) -> float:
        """Seconds on the clock that budgets and wall-clocks are read from; only differences count.

        Real time, unless the runner knows better: one that replays recorded measurements adds the
        seconds they took when they were made, so that a search's wall-clock is known without
        spending it.
        """
        return time.perf_counter()

    def best_known(self, task: Task) -> float | None:  # noqa: ARG002 - optional hook
        """The lowest cost in seconds that any configuration can have, where that is known.

        An exhaustive table knows it; hardware does not.
        """
        return None

    def interrupt(self) -> None:  # noqa: B027 - optional hook
        """Called from a signal handler's thread: finish the measurement in flight, then stop."""

    def close(self) -> None:  # noqa: B027 - optional hook
        """Stop the workers and remove every temporary file; safe to call twice."""

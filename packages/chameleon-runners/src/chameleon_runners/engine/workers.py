"""Workers of the engine, each of which does one thing at a time, and a pool of them.

A worker is a process, an actor, or simulated: the engine cannot tell which. Nothing here is
done once per worker and event, so that hundreds of workers cost what one costs.
"""

from __future__ import annotations

import heapq
import itertools
import signal
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

import attrs
from chameleon_system.processes.child import status_words

from chameleon_runners.worker.protocol import Message


class StoppedError(Exception):
    """The work was interrupted, or all workers were ended for good: nothing more is begun."""


class EndReason(StrEnum):
    """Why a worker is gone."""

    DIED = "died"
    DEADLINE = "deadline"
    MEMORY = "memory"
    GARBAGE = "garbage"


@attrs.frozen(kw_only=True)
class WorkerEnd:
    """How a worker ended.

    Attributes:
        reason: what ended it.
        status: exit status as ``subprocess`` gives it: negative for a signal.
        log: the end of what it printed during its last work.
        seconds: how long that work had taken.
    """

    reason: EndReason
    status: int
    log: str
    seconds: float

    @property
    def from_outside(self) -> bool:
        """Whether somebody else ended it, rather than the runner or its own doing."""
        killed = self.status in {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, -signal.SIGINT}
        return self.reason is EndReason.DIED and killed

    @property
    def words(self) -> str:
        """How it ended, for a message."""
        if self.reason is EndReason.DEADLINE:
            return f"did not finish within its deadline and was killed after {self.seconds:.1f} s"
        if self.reason is EndReason.MEMORY:
            return "used more memory than its limit and was killed"
        if self.reason is EndReason.GARBAGE:
            return "wrote over the connection to the runner"
        how = status_words(self.status)
        return f"exited with {how}" if self.status >= 0 else f"was killed by signal {how}"

    def explain(self) -> str:
        """``words`` followed by what was printed."""
        return f"the worker {self.words}" + (f"; it printed: {self.log[-800:]}" if self.log else "")


@attrs.frozen(kw_only=True)
class Work:
    """Something a worker is doing.

    Attributes:
        tag: what the runner makes of the answer.
        started: ``time.monotonic()`` when it began.
        deadline: ``time.monotonic()`` when it is cut.
    """

    tag: Any
    started: float
    deadline: float


@attrs.define(kw_only=True, eq=False)
class Worker:
    """Something that works on one command at a time; what its pool writes down of it.

    Attributes:
        work: what it is doing, or None.
        end: how it ended, or None.
        opened: identity of the builder it has, or None.
        built: how many builds it was given.
        garbage: slots of kernels that it lets go of with its next command.
        printed: the end of what it printed during its last work, as far as that was told.
    """

    work: Work | None = None
    end: WorkerEnd | None = None
    opened: str | None = None
    built: int = 0
    garbage: list[int] = attrs.field(factory=list)
    printed: str = ""

    @property
    def alive(self) -> bool:
        """Whether it has not ended, as far as is known."""
        return self.end is None

    @property
    def idle(self) -> bool:
        """Whether it waits for a command."""
        return self.alive and self.work is None

    @property
    def log(self) -> str:
        """The end of what it printed during its last work."""
        return self.printed

    def mark_ended(self) -> None:
        """Count as ended from now on, whatever it was doing."""
        self.work = None
        self.end = WorkerEnd(reason=EndReason.DEADLINE, status=-9, log="", seconds=0.0)


@attrs.frozen(kw_only=True, eq=False)
class WorkerEvent:
    """A worker answered, or ended.

    Attributes:
        worker: which one.
        reply: its answer, or None.
        end: how it ended, or None.
        seconds: what the work took, in seconds of the pool's clock.
    """

    worker: Worker
    reply: Message | None = None
    end: WorkerEnd | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the worker did what it was told."""
        return self.reply is not None and self.reply["status"] == "ok"

    @property
    def reason(self) -> str:
        """Why it did not, in words."""
        if self.reply is not None:
            return str(self.reply["message"])
        return self.end.explain() if self.end is not None else "it did not answer"


Listener = Callable[[WorkerEvent], None]


class WorkerPool(ABC):
    """Starts workers, gives them work, and tells listeners what became of it.

    Attributes:
        closed: whether all workers were ended for good.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Listener, WorkerEvent]] = deque()
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Worker, Work]] = []
        self.closed = False

    def _require_open(self) -> None:
        """See that workers may be started.

        Raises:
            StoppedError: all workers were ended for good.
        """
        if self.closed:
            raise StoppedError

    def _expect(self, worker: Worker, work: Work) -> None:
        """Have ``_overdue`` name a worker if it is still at its work at the deadline."""
        heapq.heappush(self._due, (work.deadline, next(self._numbers), worker, work))

    def _seconds_to_wait(self, longest: float, until: float | None) -> float:
        """How long a pool may wait: not beyond the next deadline, nor until the clock's ``until``.

        Args:
            longest: most seconds.
            until: what the caller asks for; None for whatever time it takes.
        """
        # Work that was answered in time leaves its deadline behind.
        while self._due and self._due[0][2].work is not self._due[0][3]:
            heapq.heappop(self._due)
        limits = [until] if until is not None else []
        limits += [self._due[0][0]] if self._due else []
        return max(0.0, min([longest, *(limit - self.now() for limit in limits)]))

    def _overdue(self) -> Iterator[tuple[Worker, Work]]:
        """The workers whose work has a deadline that is over, each once."""
        while self._due and self._due[0][0] < self.now():
            _, _, worker, work = heapq.heappop(self._due)
            if worker.work is work:
                yield worker, work

    @abstractmethod
    def now(self) -> float:
        """Seconds on the clock that deadlines and pauses are counted on."""

    @abstractmethod
    def start_worker(self, heard: Listener, *, preload: str | None = None) -> Worker:
        """Start a worker.

        Args:
            heard: told when it is ready for its first command, and when it ends while it is idle.
            preload: ``"module:Class"`` of the stage that it is going to be asked for.

        Raises:
            StoppedError: all workers were ended for good.
        """

    @abstractmethod
    def submit(self, worker: Worker, then: Listener, message: Message, timeout: float) -> None:
        """Give an idle worker a command; its time starts now.

        Args:
            worker: the worker.
            then: called with the answer, or with the worker's end.
            message: the command.
            timeout: longest time in seconds.
        """

    @abstractmethod
    def end_worker(self, worker: Worker) -> None:
        """End a worker, whatever it does; nobody is told."""

    def lives(self, worker: Worker) -> bool:
        """Look whether an idle worker is still there; its listener is told if it is not."""
        return worker.alive

    @abstractmethod
    def wait(self, until: float | None) -> None:
        """Collect what happens next, and return at the latest when the clock shows ``until``."""

    def run_once(self, until: float | None) -> None:
        """Wait until something happens and tell the listeners.

        The caller gets an exception of a listener; other listeners are told next time.

        Raises:
            StoppedError: all workers were ended for good, and nobody is told what became of them.
        """
        if not (self._waiting or self.closed):
            self.wait(until)
        while self._waiting and not self.closed:
            listener, event = self._waiting.popleft()
            listener(event)
        self._require_open()

    def ask(
        self, worker: Worker, message: Message, timeout: float, turn: Callable[[], None]
    ) -> WorkerEvent:
        """Give an idle worker a command and wait for its answer, or its end.

        Args:
            worker: the worker.
            message: the command.
            timeout: longest time in seconds.
            turn: has ``run_once`` called; what it raises goes to the caller.
        """
        events: list[WorkerEvent] = []
        self.submit(worker, events.append, message, timeout)
        while not events:
            turn()
        return events[0]

    def enqueue(self, listener: Listener, event: WorkerEvent) -> None:
        """Have a listener told in this turn."""
        self._waiting.append((listener, event))

    def forget_events(self, worker: Worker) -> None:
        """Tell nobody what happened to a worker and was not passed on yet."""
        self._waiting = deque(item for item in self._waiting if item[1].worker is not worker)

    @abstractmethod
    def wake(self) -> None:
        """Make ``run_once`` return soon; may be called from a signal handler."""

    @abstractmethod
    def close(self) -> None:
        """End all workers. Safe to call twice, and while another call waits."""

"""What a dispatcher works with: workers that do one thing at a time, and a pool of them.

A worker is a process, an actor, or simulated: a dispatcher cannot tell which. Nothing here is
done once per worker and event, so that hundreds of workers cost what one costs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Protocol

import attrs

from chameleon_runners.worker.protocol import Message
from chameleon_runners.worker_process import EndReason, Work, WorkerEnd


class ClosedError(Exception):
    """All workers were ended for good; there is no use in going on."""


class Worker(Protocol):
    """Something that works on one command at a time.

    Attributes:
        work: what it is doing, or None.
        end: how it ended, or None.
        opened: identity of the builder it has, or None.
        built: how many builds it was given.
    """

    work: Work | None
    end: WorkerEnd | None
    opened: str | None
    built: int

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""

    @property
    def idle(self) -> bool:
        """Whether it waits for a command."""

    @property
    def log(self) -> str:
        """The end of what it printed during its last work."""


@attrs.define(kw_only=True, eq=False)
class PlainWorker:
    """A worker whose state is what its pool writes down."""

    work: Work | None = None
    end: WorkerEnd | None = None
    opened: str | None = None
    built: int = 0
    log: str = ""

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.end is None

    @property
    def idle(self) -> bool:
        """Whether it waits for a command."""
        return self.alive and self.work is None

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


Listener = Callable[[WorkerEvent], None]


class WorkerPool(ABC):
    """Starts workers, gives them work, and tells listeners what became of it."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Listener, WorkerEvent]] = deque()

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether all workers were ended for good."""

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
            ClosedError: all workers were ended for good.
        """

    @abstractmethod
    def submit(self, worker: Worker, then: Listener, message: Message, timeout: float) -> None:
        """Give an idle worker a command; its time starts now.

        Args:
            worker: the worker.
            then: told of the answer, or of the worker's end.
            message: the command.
            timeout: longest time in seconds.
        """

    @abstractmethod
    def end_worker(self, worker: Worker) -> None:
        """End a worker, whatever it does; nobody is told."""

    @abstractmethod
    def wait(self, until: float | None) -> None:
        """Collect what happens next, and return at the latest when the clock shows ``until``."""

    def run_once(self, until: float | None) -> None:
        """Wait until something happens and tell the listeners.

        What a listener raises goes to the caller; other listeners are told next time.
        """
        if not self._waiting:
            self.wait(until)
        while self._waiting:
            listener, event = self._waiting.popleft()
            listener(event)

    def enqueue(self, listener: Listener, event: WorkerEvent) -> None:
        """Have a listener told in this turn."""
        self._waiting.append((listener, event))

    def forget_events(self, worker: Worker) -> None:
        """Tell nobody what happened to a worker and was not passed on yet."""
        self._waiting = deque(item for item in self._waiting if item[1].worker is not worker)

    @abstractmethod
    def wake(self) -> None:
        """Make ``turn`` return soon; may be called from a signal handler."""

    @abstractmethod
    def close(self) -> None:
        """End all workers. Safe to call twice, and while another call waits."""

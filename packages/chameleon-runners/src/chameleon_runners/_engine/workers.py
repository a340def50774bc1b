"""Workers of the engine, each of which handles one command at a time, and pools of workers.

A worker is a process, an actor of Ray, or simulated. The cost of an event must not grow with the
number of workers, so that a pool can have hundreds of them.
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
from chameleon_system.api import describe_status

from chameleon_runners._worker.protocol import Message


class StoppedError(Exception):
    """The pool was interrupted or closed, so no new work may start."""


class EndReason(StrEnum):
    """Why a worker ended."""

    DIED = "died"
    DEADLINE = "deadline"
    MEMORY = "memory"
    PROTOCOL_ERROR = "protocol error"


@attrs.frozen(kw_only=True)
class WorkerEnd:
    """The end of a worker, such as a crash or a time limit.

    Attributes:
        status: the exit status as ``subprocess`` gives it: negative for a signal.
        log: the end of the worker's output during its last work.
        seconds: the seconds for which the worker had been working on its last command.
    """

    reason: EndReason
    status: int
    log: str
    seconds: float

    @property
    def killed_externally(self) -> bool:
        """Whether a process other than the runner and the worker itself killed the worker."""
        killed = self.status in {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, -signal.SIGINT}
        return self.reason is EndReason.DIED and killed

    @property
    def description(self) -> str:
        """How the worker ended, as a part of a message."""
        if self.reason is EndReason.DEADLINE:
            return f"did not finish within its deadline and was killed after {self.seconds:.1f} s"
        if self.reason is EndReason.MEMORY:
            return "used more memory than memory_mib of the runner allows, and was killed"
        if self.reason is EndReason.PROTOCOL_ERROR:
            return "broke the protocol of its connection to the runner"
        how = describe_status(self.status)
        return f"exited with {how}" if self.status >= 0 else f"was killed by signal {how}"

    def explain(self) -> str:
        """A message about the end, with the worker's last output."""
        return f"the worker {self.description}" + (
            f"; it printed: {self.log[-800:]}" if self.log else ""
        )


@attrs.frozen(kw_only=True)
class Work:
    """The command that a worker is handling.

    Attributes:
        tag: the pool's own data about the work, such as the listener for the answer.
        deadline: the ``time.monotonic()`` at which the work is stopped.
    """

    tag: Any
    started: float
    deadline: float


@attrs.define(kw_only=True, eq=False)
class Worker:
    """A worker, which handles one command at a time, with its state as the pool knows it.

    Attributes:
        builder_key: the identity of the stage's builder that the worker has made, or None.
        slots_to_free: the slots (numbers) of kernels that the worker frees with its next command.
        last_output: the end of the worker's output during its last work; empty if unknown.
    """

    work: Work | None = None
    end: WorkerEnd | None = None
    builder_key: str | None = None
    build_count: int = 0
    slots_to_free: list[int] = attrs.field(factory=list)
    last_output: str = ""

    @property
    def alive(self) -> bool:
        """Whether the worker has not ended, as far as its pool knows."""
        return self.end is None

    @property
    def idle(self) -> bool:
        """Whether the worker waits for a command."""
        return self.alive and self.work is None

    @property
    def log(self) -> str:
        """The end of the worker's output during its last work."""
        return self.last_output

    def mark_ended(self) -> None:
        """Mark the worker as ended, also if it is busy."""
        self.work = None
        self.end = WorkerEnd(reason=EndReason.DEADLINE, status=-9, log="", seconds=0.0)


@attrs.frozen(kw_only=True, eq=False)
class WorkerEvent:
    """The answer of a worker to a command, or the end of the worker.

    Attributes:
        seconds: the duration of the work in seconds of the pool's clock.
    """

    worker: Worker
    reply: Message | None = None
    end: WorkerEnd | None = None
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the worker's command succeeded."""
        return self.reply is not None and self.reply["status"] == "ok"

    @property
    def reason(self) -> str:
        """Why the worker's command failed, as a message."""
        if self.reply is not None:
            return str(self.reply["message"])
        return self.end.explain() if self.end is not None else "it did not answer"


Listener = Callable[[WorkerEvent], None]


class WorkerPool(ABC):
    """Starts workers, sends them commands, and passes the answers to listeners."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Listener, WorkerEvent]] = deque()
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Worker, Work]] = []
        self.closed = False

    def _require_open(self) -> None:
        """Check that the pool is open."""
        if self.closed:
            raise StoppedError

    def _expect(self, worker: Worker, work: Work) -> None:
        """Make ``_overdue`` yield a worker if its work is not done at its deadline."""
        heapq.heappush(self._due, (work.deadline, next(self._numbers), worker, work))

    def _seconds_to_wait(self, longest: float, until: float | None) -> float:
        """Seconds until the next deadline or ``until``, at most ``longest``."""
        # Drop the deadlines of finished work.
        while self._due and self._due[0][2].work is not self._due[0][3]:
            heapq.heappop(self._due)
        limits = [until] if until is not None else []
        limits += [self._due[0][0]] if self._due else []
        return max(0.0, min([longest, *(limit - self.now() for limit in limits)]))

    def _overdue(self) -> Iterator[tuple[Worker, Work]]:
        """The workers whose work is past its deadline, each once."""
        while self._due and self._due[0][0] < self.now():
            _, _, worker, work = heapq.heappop(self._due)
            if worker.work is work:
                yield worker, work

    @abstractmethod
    def now(self) -> float:
        """The time on the pool's clock in seconds; simulated pools have a clock of their own."""

    @abstractmethod
    def start_worker(self, listener: Listener, *, preload: str | None = None) -> Worker:
        """Start a worker."""

    @abstractmethod
    def submit(self, worker: Worker, then: Listener, message: Message, timeout: float) -> None:
        """Send a command to an idle worker, and start its time limit in seconds."""

    @abstractmethod
    def end_worker(self, worker: Worker) -> None:
        """End a worker, even if it is busy; no listener is called."""

    def is_alive(self, worker: Worker) -> bool:
        """Whether an idle worker is still alive."""
        return worker.alive

    @abstractmethod
    def wait(self, until: float | None) -> None:
        """Wait for events of workers, and collect them."""

    def run_once(self, until: float | None) -> None:
        """Wait for events, and call their listeners."""
        if not (self._waiting or self.closed):
            self.wait(until)
        while self._waiting and not self.closed:
            listener, event = self._waiting.popleft()
            listener(event)
        self._require_open()

    def ask(
        self, worker: Worker, message: Message, timeout: float, turn: Callable[[], None]
    ) -> WorkerEvent:
        """Send a command to an idle worker, and wait for its answer or its end."""
        events: list[WorkerEvent] = []
        self.submit(worker, events.append, message, timeout)
        while not events:
            turn()
        return events[0]

    def enqueue(self, listener: Listener, event: WorkerEvent) -> None:
        """Add an event, so that ``run_once`` calls its listener."""
        self._waiting.append((listener, event))

    def forget_events(self, worker: Worker) -> None:
        """Discard the events of a worker for which no listener was called yet."""
        self._waiting = deque(item for item in self._waiting if item[1].worker is not worker)

    @abstractmethod
    def wake(self) -> None:
        """Make ``run_once`` return soon."""

    @abstractmethod
    def close(self) -> None:
        """End all workers."""


@attrs.define(kw_only=True, eq=False)
class BuilderPool:
    """Lends idle builders (workers that build), and replaces those that end.

    Attributes:
        cores: the cores to build on, one per builder; empty if builders may use all cores.
        recycle_after: the number of builds after which a returned builder is replaced; None for
            never.
        preload: ``"module:Class"`` of the space provider that new builders import early.
    """

    pool: WorkerPool
    size: int
    cores: list[int] = attrs.field(factory=list)
    recycle_after: int | None = None
    preload: str | None = None
    _idle: deque[Worker] = attrs.field(factory=deque, init=False)
    _numbers: dict[Worker, int] = attrs.field(factory=dict, init=False)

    def fill(self, count: int) -> None:
        """Start builders until there are ``count``, but at most ``size``."""
        while len(self._numbers) < min(count, self.size):
            vacant = set(range(self.size)).difference(self._numbers.values())
            worker = self.pool.start_worker(self._heard, preload=self.preload)
            self._numbers[worker] = max(vacant)

    def _heard(self, event: WorkerEvent) -> None:
        if event.end is None:
            self._idle.append(event.worker)
        else:
            self.forget(event.worker)

    def forget(self, worker: Worker) -> None:
        """Remove a builder that has ended, so that the pool can start another in its place."""
        self._numbers.pop(worker, None)

    @property
    def busy(self) -> bool:
        """Whether any builder is starting or has work."""
        return any(worker.work is not None for worker in self._numbers)

    def take(self, key: str) -> Worker | None:
        """Borrow an idle builder, or return None if all builders are busy."""
        while self._idle and not self._ready(self._idle[0]):
            self._idle.popleft()
        if not self._idle:
            return None
        prepared = (idle for idle in self._idle if idle.builder_key == key and self._ready(idle))
        worker = next(prepared, self._idle[0])
        self._idle.remove(worker)
        return worker

    def _ready(self, worker: Worker) -> bool:
        return worker in self._numbers and worker.idle and self.pool.is_alive(worker)

    def give_back(self, worker: Worker) -> None:
        """Return a borrowed builder, also if it has ended."""
        if not worker.alive:
            self.forget(worker)
        elif self.recycle_after is not None and worker.build_count >= self.recycle_after:
            self.end(worker)
        else:
            self._idle.append(worker)

    def end(self, worker: Worker) -> None:
        """End a builder, even if it is busy."""
        self.pool.end_worker(worker)
        self.forget(worker)

    def cores_of(self, worker: Worker) -> list[int]:
        """The core on which a builder works, as a list; empty if it may use all cores."""
        return [self.cores[self._numbers[worker] % len(self.cores)]] if self.cores else []

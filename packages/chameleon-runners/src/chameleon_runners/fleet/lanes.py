"""What a dispatcher works with: lanes that do one thing at a time, and a switchboard of them.

A lane is a worker process, or a simulated one: a dispatcher cannot tell which. Nothing here is
done once per lane and event, so that hundreds of lanes cost what one costs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Protocol

import attrs

from chameleon_runners.process import EndReason, Work, WorkerEnd
from chameleon_runners.worker.protocol import Message


class ClosedError(Exception):
    """All lanes were ended for good; there is no use in going on."""


class Lane(Protocol):
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
class PlainLane:
    """A lane whose state is what its switchboard writes down."""

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

    def dismiss(self) -> None:
        """Count as ended from now on, whatever it was doing."""
        self.work = None
        self.end = WorkerEnd(reason=EndReason.DEADLINE, status=-9, log="", seconds=0.0)


@attrs.frozen(kw_only=True, eq=False)
class LaneEvent:
    """A lane answered, or ended.

    Attributes:
        lane: which one.
        reply: its answer, or None.
        end: how it ended, or None.
        seconds: what the work took, in seconds of the switchboard's clock.
    """

    lane: Lane
    reply: Message | None = None
    end: WorkerEnd | None = None
    seconds: float = 0.0


Listener = Callable[[LaneEvent], None]


class Switchboard(ABC):
    """Starts lanes, gives them work, and tells listeners what became of it."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Listener, LaneEvent]] = deque()

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether all lanes were ended for good."""

    @abstractmethod
    def now(self) -> float:
        """Seconds on the clock that deadlines and pauses are counted on."""

    @abstractmethod
    def hire(self, heard: Listener, *, preload: str | None = None) -> Lane:
        """Start a lane.

        Args:
            heard: told when it is ready for its first command, and when it ends while it is idle.
            preload: ``"module:Class"`` of the stage that it is going to be asked for.

        Raises:
            ClosedError: all lanes were ended for good.
        """

    @abstractmethod
    def submit(self, lane: Lane, then: Listener, message: Message, timeout: float) -> None:
        """Give an idle lane a command; its time starts now.

        Args:
            lane: the lane.
            then: told of the answer, or of the lane's end.
            message: the command.
            timeout: longest time in seconds.
        """

    @abstractmethod
    def dismiss(self, lane: Lane) -> None:
        """End a lane, whatever it does; nobody is told."""

    @abstractmethod
    def wait(self, until: float | None) -> None:
        """Collect what happens next, and return at the latest when the clock shows ``until``."""

    def turn(self, until: float | None) -> None:
        """Wait until something happens and tell the listeners.

        What a listener raises goes to the caller; other listeners are told next time.
        """
        if not self._waiting:
            self.wait(until)
        while self._waiting:
            listener, event = self._waiting.popleft()
            listener(event)

    def happened(self, listener: Listener, event: LaneEvent) -> None:
        """Have a listener told in this turn."""
        self._waiting.append((listener, event))

    def hush(self, lane: Lane) -> None:
        """Tell nobody what was heard of a lane and not passed on yet."""
        self._waiting = deque(item for item in self._waiting if item[1].lane is not lane)

    @abstractmethod
    def wake(self) -> None:
        """Make ``turn`` return soon; may be called from a signal handler."""

    @abstractmethod
    def close(self) -> None:
        """End all lanes. Safe to call twice, and while another call waits."""

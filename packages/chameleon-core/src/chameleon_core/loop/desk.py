"""Where searching is done while measurements go on."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from chameleon_core.loop.interruption import RunInterrupted

T = TypeVar("T")


class Meanwhile(Protocol):
    """What goes on while somebody searches."""

    @property
    def expected(self) -> bool:
        """Whether a measurement is still to come."""

    def step(self, timeout: float | None = None) -> None:
        """Wait for the next measurement and store it.

        Raises:
            RunInterrupted: the run is to stop, and what was in flight has come.
        """

    def wake(self) -> None:
        """Make ``step`` return soon; from any thread."""


class Desk(ABC):
    """Does one piece of a search at a time: their order must not depend on a clock."""

    @abstractmethod
    def do(self, work: Callable[[], T], meanwhile: Meanwhile) -> T:
        """Do a piece of work and return what it returns."""

    def close(self) -> None:  # noqa: B027 - optional hook
        """Let go of threads; what is being done is finished first."""


class SameThread(Desk):
    """Nothing goes on meanwhile: for runners whose timings a search would disturb."""

    def do(self, work: Callable[[], T], meanwhile: Meanwhile) -> T:
        del meanwhile
        return work()


class SearchThread(Desk):
    """The search has a thread of its own, so that this one can look after the devices.

    It is not the other way round: signals are handled in the main thread, and processes may end
    with the thread that started them, which should live as long as their runner.
    """

    def __init__(self) -> None:
        self._thread: Any = ThreadPoolExecutor(1, thread_name_prefix="search")

    def do(self, work: Callable[[], T], meanwhile: Meanwhile) -> T:
        future = self._thread.submit(work)
        future.add_done_callback(lambda _: meanwhile.wake())
        # A run that is to stop stops when this is done: the next measurement would say it again.
        with contextlib.suppress(RunInterrupted):
            while meanwhile.expected and not future.done():
                meanwhile.step()
        found: T = future.result()
        return found

    def close(self) -> None:
        self._thread.shutdown()


__all__ = ["Desk", "Meanwhile", "SameThread", "SearchThread"]

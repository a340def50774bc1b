"""In which thread a search is done while measurements go on."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from chameleon_core.loop.interruption import RunInterrupted

if TYPE_CHECKING:
    from chameleon_core.loop.round.in_flight import BatchesInFlight

T = TypeVar("T")


class SearchExecutor(ABC):
    """Does one piece of a search at a time: their order must not depend on a clock."""

    @abstractmethod
    def do(self, work: Callable[[], T], meanwhile: BatchesInFlight) -> T:
        """Do a piece of work and return what it returns.

        Args:
            work: the piece.
            meanwhile: what is measured while it is done.
        """

    def close(self) -> None:  # noqa: B027 - optional hook
        """Let go of threads; what is being done is finished first."""


class SameThread(SearchExecutor):
    """Nothing goes on meanwhile: for runners whose timings a search would disturb."""

    def do(self, work: Callable[[], T], meanwhile: BatchesInFlight) -> T:
        del meanwhile
        return work()


class SearchThread(SearchExecutor):
    """The search has a thread of its own, so that this one can look after the devices.

    It is not the other way round: signals are handled in the main thread, and processes may end
    with the thread that started them, which should live as long as their runner.
    """

    def __init__(self) -> None:
        self._thread: Any = ThreadPoolExecutor(1, thread_name_prefix="search")

    def do(self, work: Callable[[], T], meanwhile: BatchesInFlight) -> T:
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


__all__ = ["SameThread", "SearchExecutor", "SearchThread"]

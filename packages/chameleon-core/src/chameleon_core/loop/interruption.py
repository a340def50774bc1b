"""Stopping in two steps: the first signal ends the run in order, the second at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from types import FrameType

from chameleon_core.errors import ChameleonError, ExitCode

HARD_STOP_SECONDS = 5.0
"""How long the workers may take to go after the second signal."""


class RunInterrupted(ChameleonError):  # noqa: N818 - it is an outcome more than an error
    """The run was asked to stop; what was measured is saved."""

    exit_code = ExitCode.INTERRUPTED


class Interruption:
    """A request to stop, and whom to pass it on to.

    Attributes:
        soft: called once, in a thread of its own, at the first request.
        hard: called at the second request, before the process exits.
    """

    def __init__(self) -> None:
        self.soft: Callable[[], None] | None = None
        self.hard: Callable[[], None] | None = None
        self._requested = threading.Event()
        self._at_once = False
        self._exiting = threading.Lock()

    @property
    def requested(self) -> bool:
        """Whether the run is to stop."""
        return self._requested.is_set()

    def request(self) -> None:
        """Ask the run to stop after what is in flight."""
        if not self.requested:
            self._requested.set()
            if self.soft is not None:
                # Not in the signal handler itself: it runs amid any instruction of the main
                # thread, which may hold a lock that stopping needs.
                threading.Thread(target=self.soft, name="interrupt", daemon=True).start()

    def check(self) -> None:
        """Raise where the run is to stop.

        Raises:
            RunInterrupted: it is.
        """
        if self.requested:
            raise RunInterrupted(
                "interrupted; everything measured is saved",
                hint="give the same command again: it continues where this run stopped",
            )

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Let the first signal cut short what the context does, instead of waiting for its end.

        For work of the main thread that leaves nothing half done on disk. What it is amid sees a
        ``KeyboardInterrupt``, as it would without a run around it.

        Raises:
            RunInterrupted: the run is to stop.
        """
        self.check()
        self._at_once = True
        try:
            yield
        except KeyboardInterrupt:
            self.check()
            raise
        finally:
            self._at_once = False
        self.check()  # somebody may have taken the exception for a failure of their own

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Listen to SIGINT and SIGTERM while the context lasts. Main thread only."""

        def handle(_number: int, _frame: FrameType | None) -> None:
            if self.requested:
                self._exit()
            # Before anything is said: whoever reads it may send the second signal at once.
            self.request()
            # Not through sys.stderr: the main thread may be amid a write to it.
            if self._at_once:
                os.write(2, b"\nstopping\n")
                raise KeyboardInterrupt
            os.write(2, b"\nstopping after what is in flight; once more to stop at once\n")

        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, handle) for number in numbers}
        try:
            with self._watched(numbers):
                yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def _watched(self, numbers: Collection[int]) -> Iterator[None]:
        """Exit at the second signal even while the main thread is in a library's code.

        Handlers run in the main thread, between two instructions of Python: a compiler may keep it
        from there for many seconds.
        """
        reader, writer = os.pipe()
        os.set_blocking(writer, False)

        def watch() -> None:
            seen = 0
            while number := os.read(reader, 1):
                seen += number[0] in numbers
                if seen > 1:
                    self._exit()
            os.close(reader)

        threading.Thread(target=watch, name="signals", daemon=True).start()
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            os.close(writer)

    def _exit(self) -> None:
        with self._exiting:  # never let go of
            if self.hard is not None:
                stopper = threading.Thread(target=self.hard, name="stop", daemon=True)
                stopper.start()
                stopper.join(HARD_STOP_SECONDS)
            os._exit(ExitCode.INTERRUPTED)

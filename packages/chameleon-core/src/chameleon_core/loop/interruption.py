"""Stopping in two steps: the first signal ends the run in order, the second at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from chameleon_core.errors import ChameleonError, ExitCode


class RunInterrupted(ChameleonError):  # noqa: N818 - it is an outcome more than an error
    """The run was asked to stop; what was measured is saved."""

    exit_code = ExitCode.INTERRUPTED


class Interruption:
    """A request to stop, and whom to pass it on to.

    Attributes:
        soft: called once, in a thread of its own, at the first request.
        hard: called at the second request, before the process exits.
        cut_short: whether the first signal is to cut short what the main thread does.
    """

    def __init__(self) -> None:
        self.soft: Callable[[], None] | None = None
        self.hard: Callable[[], None] | None = None
        self._requested = threading.Event()
        self.cut_short = False

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
        """Let the first signal interrupt the context, instead of waiting for its end.

        Use it for work of the main thread that leaves nothing half done on disk. The interrupted
        code sees a ``KeyboardInterrupt``, as it would outside a run.

        Raises:
            RunInterrupted: the run is to stop.
        """
        self.check()
        self.cut_short = True
        try:
            yield
        except KeyboardInterrupt:
            self.check()
            raise
        finally:
            self.cut_short = False
        self.check()  # somebody may have taken the exception for a failure of their own

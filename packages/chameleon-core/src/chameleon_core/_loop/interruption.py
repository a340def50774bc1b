"""Stops a run: a first signal lets running measurements finish, a second one kills the process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from chameleon_core._errors import ChameleonError, ExitCode


class RunInterrupted(ChameleonError):  # noqa: N818 - it is an outcome more than an error
    """The user asked the run to stop; all measurements are saved."""

    exit_code = ExitCode.INTERRUPTED


class Interruption:
    """The user's requests to stop a run, and the functions that are called at such a request.

    Attributes:
        soft: the function that is called once, in a separate thread, at the first request. None if
            nothing needs to be called.
        hard: the function that is called at the second request, before the process exits, or None.
        cut_short: whether the user's first signal (Ctrl-C) should also interrupt the main thread,
            and not only end the measurements.
    """

    def __init__(self) -> None:
        self.soft: Callable[[], None] | None = None
        self.hard: Callable[[], None] | None = None
        self._requested = threading.Event()
        self.cut_short = False

    @property
    def requested(self) -> bool:
        """Whether a stop was requested."""
        return self._requested.is_set()

    def request(self) -> None:
        """Ask the run to stop after the measurements that are running."""
        if not self.requested:
            self._requested.set()
            if self.soft is not None:
                # A signal handler may interrupt the main thread while it holds a lock that ``soft``
                # needs, so ``soft`` runs in another thread.
                threading.Thread(target=self.soft, name="interrupt", daemon=True).start()

    def check(self) -> None:
        """Raise an error if the user or a signal has asked the run to stop.

        Raises:
            RunInterrupted: a stop was requested.
        """
        if self.requested:
            raise RunInterrupted(
                "interrupted; everything measured is saved",
                hint="give the same command again: it continues where this run stopped",
            )

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """A context whose code the first signal interrupts at once, instead of after its end.

        Use it for work of the main thread that leaves no unfinished files. The interrupted code
        gets a ``KeyboardInterrupt``, as it would outside a run.

        Raises:
            RunInterrupted: a stop was requested.
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
        self.check()  # code in the context may have caught the exception

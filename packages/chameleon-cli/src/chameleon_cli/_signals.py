"""Signals that stop a run: the first one lets running measurements finish, the second does not."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from types import FrameType

from chameleon_core.api import Interruption, RunInterrupted
from chameleon_core.plugin_api import ExitCode

HARD_STOP_SECONDS = 5.0
"""Seconds that the workers may take to end after the second signal."""


@contextlib.contextmanager
def signals(
    interruption: Interruption, again: str = "", message: str | None = None
) -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP stop a run while the context is open.

    SIGHUP, which a closed terminal sends, stays ignored if the parent ignores it (nohup).

    Call this function in the main thread only.

    Args:
        interruption: the request to stop, which the first signal makes.
        again: the command that continues the run, for the hint of the error if the run was stopped.
        message: the message of this error; None for the message that the run gives.
    """
    leaving = threading.Lock()

    def leave() -> None:
        with leaving:  # never released
            if interruption.hard is not None:
                stopper = threading.Thread(target=interruption.hard, name="stop", daemon=True)
                stopper.start()
                stopper.join(HARD_STOP_SECONDS)
            os._exit(ExitCode.INTERRUPTED)

    def handle(number: int, _frame: FrameType | None) -> None:
        if interruption.requested:
            if number == signal.SIGHUP:
                return  # the shell and the kernel send one each if a terminal closes
            leave()
        # The request comes before the message, because the user may send the second signal at once.
        interruption.request()
        # The signal may interrupt a write to sys.stderr, so it is not used.
        if interruption.cut_short:
            _say(b"\nstopping\n")
            raise KeyboardInterrupt
        _say(b"\nstopping after what is in flight; once more to stop at once\n")

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        with _watched(numbers, leave):
            yield
    except RunInterrupted as error:
        hint = f"continue with: {again}" if again else error.hint
        raise RunInterrupted(message or str(error), hint=hint) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(message: bytes) -> None:
    with contextlib.suppress(OSError):  # the terminal may be closed
        os.write(2, message)


@contextlib.contextmanager
def _watched(numbers: Collection[int], leave: Callable[[], None]) -> Iterator[None]:
    """Exit at the second signal, even while the main thread runs a library's code.

    Python runs signal handlers in the main thread, between two instructions of Python. A compiler
    may keep the main thread busy for many seconds.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def watch() -> None:
        seen = 0
        while number := os.read(reader, 1):
            seen += number[0] in numbers and not (seen and number[0] == signal.SIGHUP)
            if seen > 1:
                leave()
        os.close(reader)

    threading.Thread(target=watch, name="signals", daemon=True).start()
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)

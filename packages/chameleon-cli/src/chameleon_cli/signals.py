"""Signals ask a run to stop: the first one in order, the second at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from types import FrameType

from chameleon_core.errors import ExitCode
from chameleon_core.loop.interruption import Interruption

HARD_STOP_SECONDS = 5.0
"""How long the workers may take to go after the second signal."""


@contextlib.contextmanager
def signals(interruption: Interruption) -> Iterator[None]:
    """Listen to SIGINT and SIGTERM while the context lasts. Main thread only.

    Args:
        interruption: is asked to stop.
    """
    leaving = threading.Lock()

    def leave() -> None:
        with leaving:  # never let go of
            if interruption.hard is not None:
                stopper = threading.Thread(target=interruption.hard, name="stop", daemon=True)
                stopper.start()
                stopper.join(HARD_STOP_SECONDS)
            os._exit(ExitCode.INTERRUPTED)

    def handle(_number: int, _frame: FrameType | None) -> None:
        if interruption.requested:
            leave()
        # Before anything is said: whoever reads it may send the second signal at once.
        interruption.request()
        # Not through sys.stderr: the main thread may be amid a write to it.
        if interruption.cut_short:
            os.write(2, b"\nstopping\n")
            raise KeyboardInterrupt
        os.write(2, b"\nstopping after what is in flight; once more to stop at once\n")

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        with _watched(numbers, leave):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _watched(numbers: Collection[int], leave: Callable[[], None]) -> Iterator[None]:
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
                leave()
        os.close(reader)

    threading.Thread(target=watch, name="signals", daemon=True).start()
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)

"""Waking a thread that waits at file descriptors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable


class WakePipe:
    """A pipe whose reading end becomes ready when somebody wants the waiting thread to go on."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._closed = False

    def fileno(self) -> int:
        """The reading end, to wait at."""
        return self._read

    def wake(self) -> None:
        """Make the reading end ready; may be called from a signal handler."""
        self._unless_closed(lambda: os.write(self._write, b"!"))

    def clear(self) -> None:
        """Make the reading end wait again."""
        self._unless_closed(lambda: os.read(self._read, 1024))

    def close(self) -> None:
        """Close both ends. Safe to call twice, and before ``wake``."""
        if not self._closed:
            self._closed = True
            os.close(self._read)
            os.close(self._write)

    def _unless_closed(self, do: Callable[[], object]) -> None:
        # The numbers of closed descriptors are soon those of somebody else's files.
        if not self._closed:
            with contextlib.suppress(OSError):
                do()

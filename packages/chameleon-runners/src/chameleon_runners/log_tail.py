"""Keeps the end of what a worker printed."""

from __future__ import annotations

import contextlib
import os
import threading


class LogTail:
    """Drains a pipe in a thread, so that whoever prints never waits, and keeps its end.

    Args:
        descriptor: the reading end of the pipe; closed by this object.
        limit: bytes kept.
    """

    def __init__(self, descriptor: int, *, limit: int = 4096) -> None:
        self._descriptor = descriptor
        self._limit = limit
        self._kept = bytearray()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, name="worker-log", daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._descriptor, 1 << 16):
                with self._lock:
                    self._kept += data
                    del self._kept[: -self._limit]
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def clear(self) -> None:
        """Forget what was printed before the work that starts now."""
        with self._lock:
            self._kept.clear()

    @property
    def text(self) -> str:
        """The end of what was printed, without unprintable characters."""
        with self._lock:
            text = self._kept.decode(errors="replace")
        return "".join(c for c in text if c.isprintable() or c in "\n\t").strip()

    def join(self, timeout: float) -> None:
        """Wait until the pipe's writers are gone, at most ``timeout`` seconds."""
        self._thread.join(timeout)

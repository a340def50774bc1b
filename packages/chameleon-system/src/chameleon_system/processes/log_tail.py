"""Keeps the end of each child's output."""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import threading


class LogTail:
    """Keeps the last bytes that are written to a pipe, so that the writer never has to wait.

    Args:
        descriptor: the reading end of the pipe, which this object closes.
        limit: the number of bytes to keep.
    """

    def __init__(self, descriptor: int, *, limit: int = 4096) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        _drain().add(descriptor, self)

    def take(self, data: bytes) -> None:
        """Add bytes that were read from the pipe; empty bytes mean that the pipe was closed.

        Args:
            data: the bytes.
        """
        if not data:
            self._ended.set()
            return
        with self._lock:
            self._kept += data
            del self._kept[: -self._limit]

    def clear(self) -> None:
        """Forget all output so far."""
        with self._lock:
            self._kept.clear()

    @property
    def text(self) -> str:
        """The end of the output as text, without unprintable characters."""
        with self._lock:
            text = self._kept.decode(errors="replace")
        return "".join(c for c in text if c.isprintable() or c in "\n\t").strip()

    def join(self, timeout: float) -> None:
        """Wait until all processes that write to the pipe have closed it.

        Args:
            timeout: the longest time to wait, in seconds.
        """
        self._ended.wait(timeout)


class _Drain:
    """Reads the pipes of all children, in one thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._arriving: list[tuple[int, LogTail]] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name="process-logs", daemon=True).start()

    def add(self, descriptor: int, tail: LogTail) -> None:
        """Read a pipe from now on, until it ends."""
        with self._lock:
            self._arriving.append((descriptor, tail))
        os.write(self._wake_write, b"!")

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    self._admit()
                else:
                    self._read(key.fd, key.data)

    def _admit(self) -> None:
        os.read(self._wake_read, 1024)
        with self._lock:
            arriving, self._arriving = self._arriving, []
        for descriptor, tail in arriving:
            self._selector.register(descriptor, selectors.EVENT_READ, tail)

    def _read(self, descriptor: int, tail: LogTail) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(descriptor, 1 << 16)
        tail.take(data)
        if not data:
            self._selector.unregister(descriptor)
            with contextlib.suppress(OSError):
                os.close(descriptor)


@functools.cache
def _drain() -> _Drain:
    return _Drain()


# Threads do not survive a fork, so a forked process needs a thread of its own.
os.register_at_fork(after_in_child=_drain.cache_clear)

"""Starts all child processes from a single thread, which lasts as long as this process.

The kernel kills a child with a death signal when the thread that started the child ends.
"""

from __future__ import annotations

import functools
import os
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

Process = subprocess.Popen[bytes]


def spawn(start: Callable[[], Process]) -> Process:
    """Start a process from the one thread that starts all processes.

    The kernel kills a child with a death signal when the thread that started it ends. The thread
    that calls this function may end earlier than this process, so it does not start the child
    itself.

    Args:
        start: a function that starts the process and returns it.

    Raises:
        OSError: the process cannot be started.
    """
    started = _spawner().submit(start)
    try:
        return started.result()
    except BaseException:
        # If the caller is interrupted, it never gets the process, so the process is killed.
        started.add_done_callback(_end)
        raise


def _end(started: Future[Process]) -> None:
    if started.exception() is None:
        process = started.result()
        process.kill()
        process.wait()


class _Spawner:
    """Runs functions in one thread, for whose end the interpreter does not wait.

    Threads of ``concurrent.futures`` end before functions that are called at exit. But such a
    function may still need a running child.
    """

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[Callable[[], Process], Future[Process]]] = SimpleQueue()
        threading.Thread(target=self._run, name="process-starter", daemon=True).start()

    def submit(self, start: Callable[[], Process]) -> Future[Process]:
        """Queue a function for the thread."""
        future: Future[Process] = Future()
        self._waiting.put((start, future))
        return future

    def _run(self) -> None:
        while True:
            start, future = self._waiting.get()
            try:
                future.set_result(start())
            except BaseException as error:  # noqa: BLE001 - raised where the caller waits
                future.set_exception(error)


@functools.cache
def _spawner() -> _Spawner:
    return _Spawner()


# Threads do not survive a fork: a child that has children of its own needs another one.
os.register_at_fork(after_in_child=_spawner.cache_clear)

"""A Python program in a child process, which never outlives this process.

All child processes are started from a single thread, which lasts as long as this process. The
kernel kills a child with a death signal when the thread that started the child ends.
"""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Self

from chameleon_system._processes.killing import kill_tree
from chameleon_system._processes.stamps import TOKEN, child_token


class LogTail:
    """Keeps the last ``limit`` bytes that are written to a pipe, so that the writer never waits."""

    def __init__(self, descriptor: int, *, limit: int = 4096) -> None:
        self._limit = limit
        self._tail = bytearray()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        _drain().add(descriptor, self)

    def take(self, data: bytes) -> None:
        """Add bytes that were read from the pipe; empty bytes mean that the pipe was closed."""
        if not data:
            self._ended.set()
            return
        with self._lock:
            self._tail += data
            del self._tail[: -self._limit]

    def clear(self) -> None:
        """Forget all output so far."""
        with self._lock:
            self._tail.clear()

    @property
    def text(self) -> str:
        """The end of the output as text, without unprintable characters."""
        with self._lock:
            text = self._tail.decode(errors="replace")
        return "".join(c for c in text if c.isprintable() or c in "\n\t").strip()

    def join(self, timeout: float) -> None:
        """Wait until all writers have closed the pipe, at most ``timeout`` seconds."""
        self._ended.wait(timeout)


class _Drain:
    """Reads the pipes of all children, in one thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._new_pipes: list[tuple[int, LogTail]] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name="process-logs", daemon=True).start()

    def add(self, descriptor: int, tail: LogTail) -> None:
        """Read a pipe from now on, until it ends."""
        with self._lock:
            self._new_pipes.append((descriptor, tail))
        os.write(self._wake_write, b"!")

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    self._register_new()
                else:
                    self._read(key.fd, key.data)

    def _register_new(self) -> None:
        os.read(self._wake_read, 1024)
        with self._lock:
            new_pipes, self._new_pipes = self._new_pipes, []
        for descriptor, tail in new_pipes:
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


Process = subprocess.Popen[bytes]


def spawn(start: Callable[[], Process]) -> Process:
    """Start a process from the one thread that starts all processes."""
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

    A thread of ``concurrent.futures`` would end before functions that are called at exit, which may
    still need a running child.
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
            except BaseException as error:  # noqa: BLE001 - the waiting caller raises it
                future.set_exception(error)


@functools.cache
def _spawner() -> _Spawner:
    return _Spawner()


# Threads do not survive a fork: a child that has children of its own needs another one.
os.register_at_fork(after_in_child=_spawner.cache_clear)


_LAUNCHER = "chameleon_system._processes.launcher"
_LOG_SECONDS = 1.0
_FIRST_POLL, _LONGEST_POLL = 0.002, 0.05


class ChildProcess:
    """Runs a module, as ``python -m`` does, in a separate session and process group.

    The kernel kills the child when this process ends, however it ends. The processes that the child
    starts carry a token, so that they are found even if they leave the session.

    Args:
        module: the module's name.
        arguments: the command-line arguments of the module.
        environment: the environment variables of the child; those of this process if None.
        folder: the working directory of the child; that of this process if None.
        descriptors: the file descriptors that the child inherits.
        stdin: the standard input, as for ``subprocess.Popen``.
        stdout: the standard output, as for ``subprocess.Popen``. With None, it goes to the log.
        idle: whether the child and its own children compute only while other processes do not.
        log_bytes: the number of bytes at the end of the output that the log keeps.

    Raises:
        OSError: the child cannot be started.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        descriptors: Sequence[int] = (),
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
        idle: bool = False,
        log_bytes: int = 4096,
    ) -> None:
        self.token = child_token()
        launch = [sys.executable, "-m", _LAUNCHER, str(os.getpid()), str(int(idle))]
        command = [*launch, module, *arguments]
        variables = {**(os.environ if environment is None else environment), TOKEN: self.token}
        read, write = os.pipe()
        try:
            self._process = spawn(
                lambda: subprocess.Popen(
                    command,
                    stdin=stdin,
                    stdout=write if stdout is None else stdout,
                    stderr=write,
                    env=variables,
                    cwd=folder,
                    pass_fds=tuple(descriptors),
                    start_new_session=True,
                )
            )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        self._log = LogTail(read, limit=log_bytes)

    @property
    def pid(self) -> int:
        """The process id of the child, which is also the id of its process group."""
        return self._process.pid

    @property
    def stdin(self) -> IO[bytes] | None:
        """The standard input of the child if it is a pipe, else None."""
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes] | None:
        """The standard output of the child if it is a pipe, else None."""
        return self._process.stdout

    @property
    def alive(self) -> bool:
        """Whether the child still runs."""
        if self._process.returncode is not None:
            return False
        # The child is reaped by ``kill`` alone: until then, no other process gets its id.
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    @property
    def log(self) -> str:
        """The end of the child's output since ``clear_log``."""
        return self._log.text

    def clear_log(self) -> None:
        self._log.clear()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group of the child, unless it has been killed."""
        if self._process.returncode is None:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait at most some seconds until the child has ended, and return whether it has."""
        limit = time.monotonic() + seconds
        pause = _FIRST_POLL
        while self.alive:
            left = limit - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(2.0 * pause, _LONGEST_POLL)
        return True

    def stop(self, grace: float) -> int:
        """Ask the child to end (SIGTERM), and ``kill`` it after ``grace`` seconds."""
        self.signal(signal.SIGTERM)
        return self.reap(grace)

    def reap(self, grace: float) -> int:
        """Wait until the child has ended by itself, and ``kill`` it after ``grace`` seconds."""
        self.wait(grace)
        return self.kill()

    def kill(self) -> int:
        """End the child and all processes that it started, and return its exit status.

        The status is that of ``subprocess``: negative for a signal. A child that ended before keeps
        its own status.
        """
        if self._process.returncode is None:
            kill_tree(self.pid, self.token)
            self._process.wait()
            for stream in (self.stdin, self.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            self._log.join(_LOG_SECONDS)
        return int(self._process.returncode)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def describe_status(status: int) -> str:
    """The name of the signal that ended a process, or ``status`` and the exit status."""
    if status >= 0:
        return f"status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return str(-status)

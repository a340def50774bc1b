"""A worker process seen from the runner: started, given work, watched, ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import attrs
import psutil

from chameleon_runners.log_tail import LogTail
from chameleon_runners.reaper import kill_worker
from chameleon_runners.worker.protocol import Decoder, Message, ProtocolError, send


class EndReason(StrEnum):
    """Why a worker is gone."""

    DIED = "died"
    DEADLINE = "deadline"
    MEMORY = "memory"
    GARBAGE = "garbage"


@attrs.frozen(kw_only=True)
class WorkerEnd:
    """How a worker ended.

    Attributes:
        reason: what ended it.
        status: exit status as ``subprocess`` gives it: negative for a signal.
        log: the end of what it printed during its last work.
        seconds: how long that work had taken.
    """

    reason: EndReason
    status: int
    log: str
    seconds: float

    @property
    def from_outside(self) -> bool:
        """Whether somebody else ended it, rather than the runner or its own doing."""
        killed = self.status in {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, -signal.SIGINT}
        return self.reason is EndReason.DIED and killed

    @property
    def words(self) -> str:
        """How it ended, for a message."""
        if self.reason is EndReason.DEADLINE:
            return f"did not finish within its deadline and was killed after {self.seconds:.1f} s"
        if self.reason is EndReason.MEMORY:
            return "used more memory than its limit and was killed"
        if self.reason is EndReason.GARBAGE:
            return "wrote over the connection to the runner"
        if self.status < 0:
            try:
                name = signal.Signals(-self.status).name
            except ValueError:
                name = str(-self.status)
            return f"was killed by signal {name}"
        return f"exited with status {self.status}"

    def explain(self) -> str:
        """``words`` followed by what was printed."""
        return f"the worker {self.words}" + (f"; it printed: {self.log[-800:]}" if self.log else "")


@attrs.frozen(kw_only=True)
class Work:
    """Something a worker is doing.

    Attributes:
        tag: what the runner makes of the answer.
        started: ``time.monotonic()`` when it began.
        deadline: ``time.monotonic()`` when it is cut.
    """

    tag: Any
    started: float
    deadline: float


class WorkerProcess:
    """One worker process. Works on one command at a time.

    Args:
        environment: its environment variables.
        token: marks its descendants; part of the environment.
        memory_bytes: resident memory above which it is killed.
        spawn: runs a function in a thread that outlives the worker. The kernel kills a worker
            when the thread that started it ends, which is earlier than its process may end.
    """

    def __init__(
        self,
        *,
        environment: dict[str, str],
        token: str,
        memory_bytes: int,
        spawn: Callable[[Callable[[], subprocess.Popen[bytes]]], subprocess.Popen[bytes]],
    ) -> None:
        self.token = token
        self.memory_bytes = memory_bytes
        self.work: Work | None = None
        self.end: WorkerEnd | None = None
        self.opened: str | None = None
        self.initialised = False
        self.garbage: list[int] = []
        self.built = 0
        self.first_memory: int | None = None
        self._paused = False
        self._ending = threading.RLock()
        self._decoder = Decoder()
        command_read, self._commands = os.pipe()
        self.replies, reply_write = os.pipe()
        log_read, log_write = os.pipe()
        arguments = [sys.executable, "-m", "chameleon_runners.worker"]
        arguments += [str(command_read), str(reply_write), str(os.getpid())]
        try:
            self._process = spawn(
                lambda: subprocess.Popen(
                    arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=log_write,
                    stderr=log_write,
                    pass_fds=(command_read, reply_write),
                    env=environment,
                    start_new_session=True,
                )
            )
        except BaseException:
            for descriptor in (self._commands, self.replies, log_read):
                os.close(descriptor)
            raise
        finally:
            for descriptor in (command_read, reply_write, log_write):
                os.close(descriptor)
        self._log = LogTail(log_read)

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended as far as the runner knows."""
        return self.end is None

    @property
    def idle(self) -> bool:
        """Whether it waits for a command."""
        return self.alive and self.work is None

    def submit(self, tag: Any, message: Message, timeout: float) -> None:
        """Give an idle worker something to do; its time starts now.

        A worker found dead is noticed when it is polled, like one that dies a moment later.
        """
        self.resume()
        if self.garbage:
            message = {**message, "drop": self.garbage}
            self.garbage = []
        self._log.clear()
        now = time.monotonic()
        self.work = Work(tag=tag, started=now, deadline=now + timeout)
        with contextlib.suppress(OSError):
            send(self._commands, message)

    def pause(self) -> None:
        """Stop the process and its group until it is given work.

        Thread pools spin for a good while after their last task, on the very cores that the
        next kernel, in another worker, is timed on.
        """
        if self.idle and not self._paused:
            self._paused = True
            self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Undo ``pause``."""
        if self._paused:
            self._paused = False
            self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self.pid, number)

    def poll(self) -> Message | None:
        """The reply to the work in hand if it came; ends the worker where it has to.

        After a call, either ``end`` is set, or a message was returned, or the work goes on.
        """
        with self._ending:
            if not self.alive:
                return None
            poll = select.poll()
            poll.register(self.replies, select.POLLIN)
            if poll.poll(0):
                return self._read()
            if self.work is not None and time.monotonic() > self.work.deadline:
                self.kill(EndReason.DEADLINE)
            elif self.memory > self.memory_bytes:
                self.kill(EndReason.MEMORY)
            return None

    def _read(self) -> Message | None:
        data = os.read(self.replies, 1 << 16)
        if not data:
            self.kill(EndReason.DIED)
            return None
        try:
            messages = self._decoder.feed(data)
        except ProtocolError:
            self.kill(EndReason.GARBAGE)
            return None
        if not messages:
            return None
        if self.work is None or len(messages) > 1:
            self.kill(EndReason.GARBAGE)
            return None
        self.work = None
        return messages[0]

    @property
    def log(self) -> str:
        """The end of what it printed since its last command."""
        return self._log.text

    @property
    def memory(self) -> int:
        """Resident memory of the worker in bytes; 0 when it is gone."""
        try:
            return int(psutil.Process(self.pid).memory_info().rss)
        except psutil.Error:
            return 0

    def kill(self, reason: EndReason = EndReason.DIED) -> WorkerEnd:
        """End the worker and all it started, and take back everything it held."""
        # The thread that measures may notice the end that the thread that closes brings about.
        with self._ending:
            if self.end is None:
                self.end = self._kill(reason)
            return self.end

    def _kill(self, reason: EndReason) -> WorkerEnd:
        if reason is EndReason.DIED:
            # Its exit status says how it died; do not overwrite it with our own signal.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._wait_unreaped(1.0)
        seconds = time.monotonic() - self.work.started if self.work is not None else 0.0
        kill_worker(self.pid, self.token)
        status = self._process.wait()
        for descriptor in (self._commands, self.replies):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._log.join(1.0)
        return WorkerEnd(reason=reason, status=status, log=self._log.text, seconds=seconds)

    def _wait_unreaped(self, timeout: float) -> None:
        """Wait until it is dead but leave it to be reaped, so that its id stays its own."""
        limit = time.monotonic() + timeout
        while time.monotonic() < limit:
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return
            time.sleep(0.002)
        raise subprocess.TimeoutExpired(self._process.args, timeout)

"""A worker process seen from the runner: started, given work, watched, ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from typing import Any

import psutil
from chameleon_system.processes.child import ChildProcess

from chameleon_runners.engine.workers import EndReason, Work, Worker, WorkerEnd
from chameleon_runners.worker.protocol import Decoder, Message, ProtocolError, send

_MODULE = "chameleon_runners.worker"
_DYING_SECONDS = 1.0
"""A worker that has closed its side of the connection is about to end: how it does so counts."""


class WorkerProcess(Worker):
    """One worker process. Works on one command at a time.

    Args:
        environment: its environment variables.
        memory_bytes: resident memory above which it is killed.
    """

    def __init__(self, *, environment: dict[str, str], memory_bytes: int) -> None:
        super().__init__()
        self.memory_bytes = memory_bytes
        self.first_memory: int | None = None
        self.paused = False
        self._ending = threading.RLock()
        self._decoder = Decoder()
        command_read, self._commands = os.pipe()
        self.replies, reply_write = os.pipe()
        theirs = (command_read, reply_write)
        try:
            self._child = ChildProcess(
                _MODULE, list(map(str, theirs)), environment=environment, descriptors=theirs
            )
        except BaseException:
            for descriptor in (self._commands, self.replies):
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._child.pid

    def submit(self, tag: Any, message: Message, timeout: float) -> None:
        """Give an idle worker something to do; its time starts now.

        A worker found dead is noticed when it is polled, like one that dies a moment later.
        """
        self.resume()
        if self.garbage:
            message = {**message, "drop": self.garbage}
            self.garbage = []
        self._child.clear_log()
        now = time.monotonic()
        self.work = Work(tag=tag, started=now, deadline=now + timeout)
        with contextlib.suppress(OSError):
            send(self._commands, message)

    def pause(self) -> None:
        """Stop the process and its group until it is given work; one that works goes on."""
        if self.idle and not self.paused:
            self.paused = True
            self._child.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Undo ``pause``."""
        if self.paused:
            self.paused = False
            self._child.signal(signal.SIGCONT)

    def poll(self) -> Message | None:
        """The reply to the work in hand if it came; ends the worker if it has to.

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
        return self._child.log

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
            self._child.wait(_DYING_SECONDS)
        seconds = time.monotonic() - self.work.started if self.work is not None else 0.0
        status = self._child.kill()
        for descriptor in (self._commands, self.replies):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        return WorkerEnd(reason=reason, status=status, log=self.log, seconds=seconds)

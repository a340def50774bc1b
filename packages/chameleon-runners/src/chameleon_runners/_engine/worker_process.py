"""A worker process as seen by the runner: its start, commands, limits and end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from typing import Any

import psutil
from chameleon_system.api import ChildProcess

from chameleon_runners._engine.workers import EndReason, Work, Worker, WorkerEnd
from chameleon_runners._worker.protocol import Decoder, Message, ProtocolError, send

_MODULE = "chameleon_runners._worker"
_EXIT_SECONDS = 5.0
"""Seconds to wait for the exit status of a worker that closed its connection."""


class PipeEnd:
    """A file descriptor that is closed with this object."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class WorkerProcess(Worker):
    """One worker process, which handles one command at a time."""

    def __init__(self, *, environment: dict[str, str], memory_bytes: int) -> None:
        super().__init__()
        self.memory_bytes = memory_bytes
        self.first_memory: int | None = None
        self.paused = False
        self._ending = threading.RLock()
        self._decoder = Decoder()
        command_read, commands = os.pipe()
        self._commands: PipeEnd | None = PipeEnd(commands)
        self.replies, reply_write = os.pipe()
        theirs = (command_read, reply_write)
        try:
            self._child = ChildProcess(
                _MODULE, list(map(str, theirs)), environment=environment, descriptors=theirs
            )
        except BaseException:
            self._commands = None
            os.close(self.replies)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)

    @property
    def pid(self) -> int:
        """The process id of the worker."""
        return self._child.pid

    def submit(self, tag: Any, message: Message, timeout: float) -> None:
        """Send a command to an idle worker, and start its time limit in seconds."""
        self.resume()
        if self.slots_to_free:
            message = {**message, "drop": self.slots_to_free}
            self.slots_to_free = []
        self._child.clear_log()
        now = time.monotonic()
        self.work = Work(tag=tag, started=now, deadline=now + timeout)
        if (commands := self._commands) is not None:
            with contextlib.suppress(OSError):
                send(commands.number, message)

    def pause(self) -> None:
        """Stop an idle worker and its child processes until its next command."""
        if self.idle and not self.paused:
            self.paused = True
            self._child.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Undo ``pause``."""
        if self.paused:
            self.paused = False
            self._child.signal(signal.SIGCONT)

    def poll(self) -> Message | None:
        """The reply to the current command, or None.

        A worker that is overdue or exceeds its memory limit is killed.
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
            self.kill(EndReason.PROTOCOL_ERROR)
            return None
        if not messages:
            return None
        if self.work is None or len(messages) > 1:
            self.kill(EndReason.PROTOCOL_ERROR)
            return None
        self.work = None
        return messages[0]

    @property
    def log(self) -> str:
        """The end of the worker's output since its last command."""
        return self._child.log

    @property
    def memory(self) -> int:
        """The memory that the worker occupies in bytes; 0 if the worker has ended."""
        try:
            return int(psutil.Process(self.pid).memory_info().rss)
        except psutil.Error:
            return 0

    def kill(self, reason: EndReason = EndReason.DIED) -> WorkerEnd:
        """Kill the worker and all processes that it started, and close its pipes."""
        # The measuring thread and the closing thread may both notice the end.
        with self._ending:
            if self.end is None:
                self.end = self._kill(reason)
            return self.end

    def _kill(self, reason: EndReason) -> WorkerEnd:
        if reason is EndReason.DIED:
            # Wait until the worker exits by itself, because a signal would replace its exit status.
            self._child.wait(_EXIT_SECONDS)
        seconds = time.monotonic() - self.work.started if self.work is not None else 0.0
        status = self._child.kill()
        self._commands = None
        with contextlib.suppress(OSError):
            os.close(self.replies)
        return WorkerEnd(reason=reason, status=status, log=self.log, seconds=seconds)

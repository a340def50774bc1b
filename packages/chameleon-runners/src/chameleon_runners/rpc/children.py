"""One process that serves: started, started again when it ends, ended with all it started."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Sequence

import structlog
from chameleon_core.errors import TargetError
from chameleon_system.processes.child import ChildProcess
from chameleon_system.processes.conversation import ChildEndedError, Conversation

from chameleon_runners.rpc.addresses import Address

_log = structlog.get_logger()

_MODULE = "chameleon_runners.rpc.host"
_END_SECONDS = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
_STEADY_SECONDS = 30.0
"""A process that lived for so long is restarted at once."""

START_SECONDS = 60.0
"""Longest start of a process, its imports included, in seconds."""


class Child:
    """One process that listens on a port, started again on the same port when it ends.

    Args:
        role: ``server`` or ``tracker``.
        address: where it listens.
        arguments: more arguments of its module.
        environment: its environment variables.
    """

    def __init__(
        self,
        role: str,
        address: Address,
        arguments: Sequence[str],
        environment: dict[str, str],
    ) -> None:
        self.role = role
        self.address = address
        self.restarts = 0
        self._arguments = list(arguments)
        self._environment = environment
        self._process: ChildProcess | None = None
        self._conversation: Conversation | None = None
        self._started = 0.0
        self._pause = _FIRST_PAUSE
        self._due = 0.0
        self._listening = False

    @property
    def pid(self) -> int | None:
        """Its process id; None when there is none."""
        return None if self._process is None else self._process.pid

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.alive

    def start(self) -> None:
        """Start its process; ``listens`` says when it is ready."""
        where = ["--host", self.address.host, "--port", str(self.address.port)]
        self._process = ChildProcess(
            _MODULE,
            [self.role, *where, *self._arguments],
            environment=self._environment,
            stdout=subprocess.PIPE,
        )
        self._conversation = Conversation(self._process)
        self._started = time.monotonic()
        self._listening = False

    def wait(self) -> None:
        """Wait until it listens.

        Raises:
            TargetError: it ends, or does not listen in time.
        """
        limit = time.monotonic() + START_SECONDS
        while not self.listens(limit - time.monotonic()):
            if not self.alive or time.monotonic() > limit:
                said = self._process.log[-600:] if self._process is not None else ""
                self.stop()
                raise TargetError(
                    f"the {self.role} at {self.address} does not start: {said or 'it is silent'}",
                    hint="Choose another --port if this one is taken.",
                )

    def listens(self, seconds: float = 0.0) -> bool:
        """Whether it said that it listens, waiting for that so long."""
        if not self._listening and self._conversation is not None:
            with contextlib.suppress(TimeoutError, ChildEndedError):
                self._listening = "port" in self._conversation.answer(seconds)
        return self._listening

    def tend(self) -> None:
        """Start it again if it ended, after a pause that grows while it keeps ending."""
        if self.alive:
            self.listens()
            return
        now = time.monotonic()
        if self._due == 0.0:
            if now - self._started > _STEADY_SECONDS:
                self._pause = _FIRST_PAUSE
            self._due = now + self._pause
            self._pause = min(2.0 * self._pause, _LONGEST_PAUSE)
        if now >= self._due:
            self._due = 0.0
            self.stop()
            self.restarts += 1
            _log.warning("restarted", role=self.role, address=str(self.address))
            self.start()

    def kill(self) -> None:
        """End its processes the hard way; ``tend`` starts it again."""
        if self._process is not None:
            self._process.signal(signal.SIGKILL)

    def stop(self) -> None:
        """End it and whatever it started."""
        process, self._process = self._process, None
        if process is not None:
            process.stop(_END_SECONDS)

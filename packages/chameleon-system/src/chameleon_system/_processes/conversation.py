"""Requests to a child process and its answers, as lines of JSON through standard streams."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import time
from typing import Any

from chameleon_system._processes.child import ChildProcess

_PIECE = 1 << 20

Message = dict[str, Any]


class ChildEndedError(Exception):
    """The child has ended, or closed its side; ``ChildProcess.kill`` returns its exit status."""


class Conversation:
    """Sends requests to a child with pipes as standard streams, and waits for its answers."""

    def __init__(self, child: ChildProcess) -> None:
        self._child = child
        self._received = b""

    def tell(self, request: Message) -> None:
        """Send a request to the child without waiting for the answer.

        Raises:
            ChildEndedError: the child does not read requests any more.
        """
        stdin = self._child.stdin
        if stdin is None:
            raise ChildEndedError
        try:
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        except (OSError, ValueError) as error:  # either side closed the pipe
            raise ChildEndedError from error

    def close(self) -> None:
        """Close the child's standard input. A child that waits for a request then ends."""
        if self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.close()

    def fileno(self) -> int:
        """The file descriptor of the child's answers, for waiting for several children at once.

        Raises:
            ValueError: the descriptor is closed, or the child has no standard output.
        """
        if self._child.stdout is None:
            raise ValueError("the child has no standard output")
        return self._child.stdout.fileno()

    def answer(self, seconds: float) -> Message:
        """Wait at most some seconds for the next answer of the child.

        A part of an answer that has arrived by then is kept for the next call.

        Raises:
            TimeoutError: no answer came in time.
            ChildEndedError: the child will send no further answer.
        """
        stdout = self._child.stdout
        if stdout is None or stdout.closed:
            raise ChildEndedError
        limit = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in self._received:
                if not selector.select(max(0.0, limit - time.monotonic())):
                    raise TimeoutError
                part = os.read(stdout.fileno(), _PIECE)
                if not part:
                    raise ChildEndedError
                self._received += part
        line, _, self._received = self._received.partition(b"\n")
        try:
            answer = json.loads(line)
        except ValueError as error:
            raise ChildEndedError from error
        if not isinstance(answer, dict):
            raise ChildEndedError
        return answer

"""Keeps stdout for results, and handles readers that close a command's output early."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from chameleon_core.plugin_api import ChameleonError, ExitCode

_STDOUT, _STDERR = 1, 2


@contextlib.contextmanager
def results_alone() -> Iterator[None]:
    """Send to stderr all that is printed to stdout while the context is open.

    This includes output of Python code, of libraries that write to the file descriptor, and of
    child processes that inherit it. A command prints its own results after the context.
    """
    sys.stdout.flush()
    with contextlib.ExitStack() as restored:
        # A process may have been started without one of the two.
        with contextlib.suppress(OSError):
            copy = os.dup(_STDOUT)
            restored.callback(os.close, copy)
            os.dup2(_STDERR, _STDOUT)
            restored.callback(os.dup2, copy, _STDOUT)
        restored.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


def open_missing() -> None:
    """Open the standard streams that this process was started without, as if at ``/dev/null``.

    Otherwise the next file that a process opens, or a child inherits, would get their output.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The system takes the smallest free number, which is this one.
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)
            setattr(sys, name, os.fdopen(opened, "w" if number else "r"))


class OutlivingStream:
    """Writes to a stream; if its reader has gone or the disk is full, further output is dropped.

    Attributes:
        failure: the first error of the stream, or None.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._leave(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._leave(error)

    def _leave(self, error: OSError) -> None:
        self.failure = self.failure or error
        # The rest of the stream's buffer is dropped too.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def problem(self) -> ChameleonError | None:
        """The reason why results could not be written, such as a full disk; else None."""
        self.flush()
        if self.failure is None or isinstance(self.failure, BrokenPipeError):
            return None
        return OutputError(
            f"the output cannot be written: {self.failure.strerror}",
            hint="Files that the command wrote are kept; give it another output.",
        )


class OutputError(ChameleonError):
    """A command's results could not be written to stdout."""

    exit_code = ExitCode.NO_VALID_RESULT


@contextlib.contextmanager
def outliving_readers() -> Iterator[OutlivingStream]:
    """Let a command finish its work even if the reader of its output has ended.

    For example, ``| head`` ends after ten lines. The context's value stands for stdout.
    """
    with contextlib.ExitStack() as restored:
        streams = []
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            restored.callback(setattr, sys, name, stream)
            streams.append(OutlivingStream(stream))
            setattr(sys, name, streams[-1])
        try:
            yield streams[0]
        finally:
            streams[0].flush()

"""Keeps stdout for results, and handles readers that close a command's output early."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

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


class _OutlivingStream:
    """Writes to a stream; if its reader has gone, further output is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._leave()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._leave()

    def _leave(self) -> None:
        # The rest of the stream's buffer is dropped too.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def outliving_readers() -> Iterator[None]:
    """Let a command finish its work even if the reader of its output has ended.

    For example, ``| head`` ends after ten lines.
    """
    with contextlib.ExitStack() as restored:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            restored.callback(setattr, sys, name, stream)
            setattr(sys, name, _OutlivingStream(stream))
        yield
        sys.stdout.flush()

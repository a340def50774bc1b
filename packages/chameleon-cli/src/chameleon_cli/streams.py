"""Keeps stdout for results: what plugins and libraries print goes to stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

_STDOUT, _STDERR = 1, 2


@contextlib.contextmanager
def results_alone() -> Iterator[None]:
    """Send to stderr whatever is printed to stdout meanwhile.

    By Python code, by libraries that write to the file descriptor, and by child processes that
    inherit it. What a command itself has to say it says afterwards.
    """
    sys.stdout.flush()
    with contextlib.ExitStack() as restored:
        # A process may have been started without one of the two.
        with contextlib.suppress(OSError):
            kept = os.dup(_STDOUT)
            restored.callback(os.close, kept)
            os.dup2(_STDERR, _STDOUT)
            restored.callback(os.dup2, kept, _STDOUT)
        restored.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield

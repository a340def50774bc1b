"""Warnings of TVM's C++ code, which it writes to standard error each time: shown once each."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator

import structlog

log = structlog.get_logger()

_LINE = re.compile(rb"^\[\d\d:\d\d:\d\d\] (?P<place>\S+?:\d+): Warning: (?P<words>.*)$")
_told: set[bytes] = set()
"""What this process has shown."""


@contextlib.contextmanager
def warnings_once() -> Iterator[None]:
    """Hold back what is written to standard error while the context lasts.

    Afterwards it is written as it was, but for TVM's warnings: each is logged once a process,
    whatever the time before it. A file holds it, since C++ code that holds Python's lock would
    wait for ever on a full pipe.
    """
    sys.stderr.flush()
    try:
        original = os.dup(2)
    except OSError:  # there is no standard error
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(original, 2)
            os.close(original)
            held.seek(0)
            for line in held:
                _pass_on(line)


def _pass_on(line: bytes) -> None:
    found = _LINE.match(line.rstrip())
    if found is None:
        os.write(2, line)
        return
    words = found["words"]
    if words not in _told:
        _told.add(words)
        log.info("compiler_warns", words=words.decode(errors="replace"))

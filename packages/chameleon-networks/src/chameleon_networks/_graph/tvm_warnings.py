"""Shows each warning of TVM's C++ code once, which otherwise repeats on standard error."""

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
_logged: set[bytes] = set()
"""The warnings that this process has shown."""


@contextlib.contextmanager
def warnings_once() -> Iterator[None]:
    """Hold back standard error, and log each of TVM's warnings in it once per process."""
    # A file holds the text: C++ code with Python's lock would wait forever on a full pipe.
    sys.stderr.flush()
    try:
        original = os.dup(2)
    except OSError:  # there is no standard error
        yield
        return
    with tempfile.TemporaryFile() as buffer:
        os.dup2(buffer.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(original, 2)
            os.close(original)
            buffer.seek(0)
            for line in buffer:
                _pass_on(line)


def _pass_on(line: bytes) -> None:
    match = _LINE.match(line.rstrip())
    if match is None:
        os.write(2, line)
        return
    words = match["words"]
    if words not in _logged:
        _logged.add(words)
        log.info("compiler_warns", words=words.decode(errors="replace"))

"""Writes standard error as JSON lines, for programs that read it."""

from __future__ import annotations

import datetime as dt
import io
import json
import sys
from typing import Any, TextIO


class JsonLines(io.TextIOBase):
    """A text stream for ``--log-format json``, which writes each line as one JSON object.

    Args:
        stream: the stream to which the objects are written.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.stream = stream
        self._rest = ""

    def write(self, text: str) -> int:
        """Write each complete line of ``text`` as an object with the level ``info``.

        Args:
            text: the text, whose last line may be incomplete.
        """
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line.strip():
                self.say("info", line)
        return len(text)

    def say(self, level: str, event: str, **more: Any) -> None:
        """Write one object, with the present time in UTC.

        Args:
            level: the level of the log, such as ``error``.
            event: the message.
            more: further fields as JSON values. Fields with the value None are left out.
        """
        now = dt.datetime.now(dt.UTC).isoformat().replace("+00:00", "Z")
        fields = {name: value for name, value in more.items() if value is not None}
        line = json.dumps({"timestamp": now, "level": level, "event": event, **fields})
        self.stream.write(line + "\n")
        self.stream.flush()

    def finish(self) -> None:
        """Write the text after the last line break as an object, when the process ends."""
        if self._rest:
            self.write("\n")

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.stream.fileno()

    def flush(self) -> None:
        self.stream.flush()


def json_lines() -> JsonLines | None:
    """The object that turns standard error into JSON lines; None if stderr is plain text."""
    return sys.stderr if isinstance(sys.stderr, JsonLines) else None


def begin() -> None:
    """Write standard error as JSON lines from now on."""
    if json_lines() is None:
        sys.stderr = JsonLines(sys.stderr)


def end() -> None:
    """Write standard error in the way it was written before ``begin``."""
    lines = json_lines()
    if lines is not None:
        lines.finish()
        sys.stderr = lines.stream

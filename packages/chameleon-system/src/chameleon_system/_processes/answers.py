"""The child's side of a conversation: only answers go to its standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

from chameleon_system._processes.conversation import Message


class AnswerStream:
    """Reserves a child's standard output for answers; all other output goes to its log."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def send(self, answer: Message) -> None:
        """Send an answer to the parent."""
        self._stream.write(json.dumps(answer) + "\n")
        self._stream.flush()


def read_requests() -> Iterator[Message]:
    """The requests of the parent, until the parent closes its side."""
    for line in sys.stdin:
        yield json.loads(line)

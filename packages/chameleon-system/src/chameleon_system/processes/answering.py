"""The child's side of a conversation: answers on the standard output, and nothing else there."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]


class Answers:
    """Has the standard output to itself: what libraries print goes to the log from now on."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def send(self, answer: Message) -> None:
        """Answer the parent."""
        self._stream.write(json.dumps(answer) + "\n")
        self._stream.flush()


def requests() -> Iterator[Message]:
    """The parent's requests, until it closes its side."""
    for line in sys.stdin:
        yield json.loads(line)

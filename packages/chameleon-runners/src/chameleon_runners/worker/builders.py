"""The builders a worker has made: a scheduler goes from task to task and comes back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psutil

from chameleon_runners.worker.protocol import Message
from chameleon_runners.worker.stages import make_builder

if TYPE_CHECKING:
    from chameleon_core.stages import Builder

_SAME = ("factory", "options", "task", "variant", "threads")
"""What two messages that describe one builder have in common."""

_MOST = 64
_GROWTH_BYTES = 512 << 20
"""Growth of the process above which only the builder in use is kept: they hold their inputs, which
are weights of hundreds of megabytes now and then."""


class Builders:
    """Makes each builder once, as long as memory allows."""

    def __init__(self) -> None:
        self._made: dict[str, Builder] = {}
        self._process = psutil.Process()
        self._bytes_before: int | None = None

    def get(self, message: Message) -> Builder:
        """The builder that an ``open`` command describes.

        Raises:
            ChameleonError: the stage cannot be imported or cannot do this task.
        """
        key = json.dumps([message.get(name) for name in _SAME], sort_keys=True)
        if key not in self._made:
            if self._crowded:
                self._made.clear()
            self._made[key] = make_builder(message)
            if self._bytes_before is None:
                self._bytes_before = self._bytes
        return self._made[key]

    @property
    def _crowded(self) -> bool:
        if self._bytes_before is None:
            return False
        return len(self._made) >= _MOST or self._bytes > self._bytes_before + _GROWTH_BYTES

    @property
    def _bytes(self) -> int:
        return int(self._process.memory_info().rss)

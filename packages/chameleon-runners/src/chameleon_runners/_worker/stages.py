"""Makes the builders and devices of stages in a worker, from the runner's messages."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable
from typing import Any

import psutil
from chameleon_core.plugin_api import (
    Baseline,
    Builder,
    Device,
    SpaceProvider,
    Task,
    load_factory,
    options_for,
)

from chameleon_runners._worker.protocol import Message


def make_builder(message: Message) -> Builder:
    """Make the builder that an ``open`` command describes."""
    factory = _load(message["factory"])
    stage = factory(options_for(factory, message["options"]))
    task = Task(**message["task"])
    if isinstance(stage, Baseline):
        return stage.builder(task, message["variant"], threads=message["threads"])
    provider: SpaceProvider = stage
    return provider.builder(task, threads=message["threads"])


def make_device(factory: str, options: dict[str, Any]) -> Device:
    """Make a device from its ``StageRef``."""
    kind = _load(factory)
    device: Device = kind(options_for(kind, options))
    return device


def preload(factory: str) -> None:
    """Import a stage's class before it is needed, so that a later command is fast.

    Errors are ignored, because a later command raises them again.
    """
    with contextlib.suppress(Exception, SystemExit):
        _load(factory)


def _load(factory: str) -> Callable[..., Any]:
    """Import a stage's class, and the modules that it ``preloads``.

    Otherwise the first kernel that is built would wait for these.
    """
    kind = load_factory(factory)
    for module in getattr(kind, "preloads", ()):
        importlib.import_module(module)
    return kind


_SAME = ("factory", "options", "task", "variant", "threads")
"""The fields in which all messages that describe the same builder agree."""

_MOST = 64
_GROWTH_BYTES = 512 << 20
"""Growth of the process above which only the current builder is kept.

Builders hold their inputs, and weights may be hundreds of megabytes.
"""


class Builders:
    """Keeps the builders that a worker has made, as long as memory allows."""

    def __init__(self) -> None:
        self._made: dict[str, Builder] = {}
        self._process = psutil.Process()
        self._bytes_before: int | None = None

    def get(self, message: Message) -> Builder:
        """The builder that an ``open`` command describes, made at the first such command."""
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

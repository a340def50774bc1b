"""Makes the builders and devices of stages in a worker, from the runner's messages."""

from __future__ import annotations

import contextlib
import importlib
import json
from typing import Any

import psutil
from chameleon_core.plugin_api import (
    Baseline,
    Builder,
    Device,
    SpaceProvider,
    StageRef,
    Task,
    load_factory,
)

from chameleon_runners._worker.protocol import Message


def make_builder(message: Message) -> Builder:
    """Make the builder that an ``open`` command describes."""
    stage = _create(message["factory"], message["options"])
    task = Task(**message["task"])
    if isinstance(stage, Baseline):
        return stage.builder(task, message["variant"], threads=message["threads"])
    provider: SpaceProvider = stage
    return provider.builder(task, threads=message["threads"])


def make_device(factory: str, options: dict[str, Any]) -> Device:
    """Make a device from its ``StageRef``."""
    device: Device = _create(factory, options)
    return device


def preload(factory: str) -> None:
    """Import a stage's class early, without errors, so that a later command is fast."""
    with contextlib.suppress(Exception, SystemExit):
        _load(factory)


def _load(factory: str) -> None:
    """Import a stage's class, and the modules that it ``preloads``."""
    for module in getattr(load_factory(factory), "preloads", ()):
        importlib.import_module(module)


def _create(factory: str, options: dict[str, Any]) -> Any:
    _load(factory)
    return StageRef(factory=factory, options=options).create()


_KEY_FIELDS = ("factory", "options", "task", "variant", "threads")
"""The fields in which all messages that describe the same builder agree."""

_LARGEST_CACHE = 64
_LARGEST_GROWTH = 512 << 20
"""Growth of the process in bytes above which only the current builder is kept, since builders hold
their inputs."""


class BuilderCache:
    """Keeps the builders that a worker has made, as long as memory allows."""

    def __init__(self) -> None:
        self._builders: dict[str, Builder] = {}
        self._process = psutil.Process()
        self._bytes_before: int | None = None

    def get(self, message: Message) -> Builder:
        """The builder that an ``open`` command describes, made at the first such command."""
        key = json.dumps([message.get(name) for name in _KEY_FIELDS], sort_keys=True)
        if key not in self._builders:
            if self._full:
                self._builders.clear()
            self._builders[key] = make_builder(message)
            if self._bytes_before is None:
                self._bytes_before = self._bytes
        return self._builders[key]

    @property
    def _full(self) -> bool:
        if self._bytes_before is None:
            return False
        return (
            len(self._builders) >= _LARGEST_CACHE
            or self._bytes > self._bytes_before + _LARGEST_GROWTH
        )

    @property
    def _bytes(self) -> int:
        return int(self._process.memory_info().rss)

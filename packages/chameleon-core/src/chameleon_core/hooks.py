"""Registers this package's plugins."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugins.hookspecs import hookimpl
from chameleon_core.plugins.records import NoOptions, PluginRecord


@hookimpl
def chameleon_schedulers() -> Iterable[PluginRecord]:
    """The schedulers of core."""
    yield PluginRecord(
        name="round-robin",
        summary="one batch each in turn",
        options=NoOptions,
        factory="chameleon_core.loop.scheduler:RoundRobin",
    )

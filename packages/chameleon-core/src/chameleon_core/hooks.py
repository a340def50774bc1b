"""Registers this package's plugins."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugins.hookspecs import hookimpl
from chameleon_core.plugins.records import CommandRecord, NoOptions, PluginRecord


@hookimpl
def chameleon_schedulers() -> Iterable[PluginRecord]:
    """The schedulers of core."""
    yield PluginRecord(
        name="round-robin",
        summary="one batch each in turn",
        options=NoOptions,
        factory="chameleon_core.loop.scheduler:RoundRobin",
    )


@hookimpl
def chameleon_commands() -> Iterable[CommandRecord]:
    """The commands of core that not everyone needs."""
    yield CommandRecord(
        name="bench",
        summary="Compare pipelines on tasks over seeds, and write a report.",
        factory="chameleon_core.cli.bench:command",
    )

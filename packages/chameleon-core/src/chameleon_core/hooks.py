"""Registers this package's plugins."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugins.hookspecs import hookimpl
from chameleon_core.plugins.records import CommandRecord, NoOptions, PluginRecord
from chameleon_core.schedulers.options import GradientOptions


@hookimpl
def chameleon_schedulers() -> Iterable[PluginRecord]:
    """The schedulers of core."""
    yield PluginRecord(
        name="round-robin",
        summary="one batch each in turn",
        options=NoOptions,
        factory="chameleon_core.schedulers.round_robin:RoundRobin",
    )
    yield PluginRecord(
        name="gradient",
        summary="the next batch where it saves most of the network's latency (Ansor)",
        options=GradientOptions,
        factory="chameleon_core.schedulers.gradient:Gradient",
    )


@hookimpl
def chameleon_commands() -> Iterable[CommandRecord]:
    """The commands of core that not everyone needs."""
    yield CommandRecord(
        name="bench",
        summary="Compare pipelines on tasks over seeds, and write a report.",
        factory="chameleon_core.cli.bench:command",
    )

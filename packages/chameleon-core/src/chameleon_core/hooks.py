"""Registers this package's plugins."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugins.hookspecs import hookimpl
from chameleon_core.plugins.records import NoOptions, PluginRecord
from chameleon_core.schedulers.options import GradientOptions


@hookimpl
def chameleon_schedulers() -> Iterable[PluginRecord]:
    """The schedulers of core."""
    yield PluginRecord(
        name="round-robin",
        summary="one batch each in turn",
        options=NoOptions,
        factory="chameleon_core.schedulers.gradient:RoundRobin",
    )
    yield PluginRecord(
        name="gradient",
        summary="the next batch to the task that saves most of the network's latency (Ansor)",
        options=GradientOptions,
        factory="chameleon_core.schedulers.gradient:Gradient",
    )

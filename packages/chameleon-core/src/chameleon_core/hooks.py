"""Registers this package's plugins."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core._plugins.hookspecs import hookimpl
from chameleon_core._plugins.records import PluginRecord, recorder
from chameleon_core._schedulers.options import GradientOptions

_record = recorder("chameleon_core")


@hookimpl
def chameleon_schedulers() -> Iterable[PluginRecord]:
    """The schedulers of ``chameleon-core``."""
    turns = "one batch each in turn"
    gradient = "the next batch to the task that saves most of the network's latency (Ansor)"
    yield _record("round-robin", turns, "_schedulers.gradient:RoundRobin")
    yield _record("gradient", gradient, "_schedulers.gradient:Gradient", GradientOptions)

"""Registers this package's runners and baselines; imports no numerical library."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugins import PluginRecord, hookimpl

from chameleon_runners.baselines.records import BASELINES
from chameleon_runners.options import LocalOptions


@hookimpl
def chameleon_runners() -> Iterable[PluginRecord]:
    """The runners of this package."""
    return (
        PluginRecord(
            name="local",
            summary="Worker processes on this machine's CPU",
            factory="chameleon_runners.local:LocalRunner",
            options=LocalOptions,
        ),
    )


@hookimpl
def chameleon_baselines() -> Iterable[PluginRecord]:
    """The baselines of this package."""
    return BASELINES

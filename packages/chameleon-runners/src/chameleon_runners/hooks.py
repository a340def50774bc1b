"""Registers this package's runners and baselines; imports no numerical library."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugins import NoOptions, PluginRecord, hookimpl

from chameleon_runners.baselines.records import BASELINES
from chameleon_runners.options import LocalOptions
from chameleon_runners.replay.options import ReplayOptions, TableOptions


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
        PluginRecord(
            name="replay",
            summary="Recorded tables instead of hardware, on a simulated clock",
            factory="chameleon_runners.replay.runner:ReplayRunner",
            options=ReplayOptions,
        ),
    )


@hookimpl
def chameleon_frontends() -> Iterable[PluginRecord]:
    """The frontends of this package."""
    return (
        PluginRecord(
            name="table",
            summary="Recorded tables: Kernel Tuner caches, T4 files, run folders",
            factory="chameleon_runners.replay.frontend:TableFrontend",
            options=TableOptions,
        ),
    )


@hookimpl
def chameleon_spaces() -> Iterable[PluginRecord]:
    """The design spaces of this package."""
    return (
        PluginRecord(
            name="table",
            summary="What a recorded table tried, a knob for each of its parameters",
            factory="chameleon_runners.replay.space:TableSpace",
            options=NoOptions,
            operators=("table",),
        ),
    )


@hookimpl
def chameleon_baselines() -> Iterable[PluginRecord]:
    """The baselines of this package."""
    return BASELINES

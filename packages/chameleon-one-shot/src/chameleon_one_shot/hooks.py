"""Registers this package's commands."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugins import CommandRecord, hookimpl


@hookimpl
def chameleon_commands() -> Iterable[CommandRecord]:
    """Data sets of measured candidates."""
    yield CommandRecord(
        name="dataset",
        summary="Collect measurements of many tasks, or import, merge and check them.",
        factory="chameleon_one_shot.commands.dataset:command",
    )

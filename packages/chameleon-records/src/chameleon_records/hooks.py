"""Registers the record database and the command of this package."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugin_api import CommandRecord, PluginRecord, RecordDatabaseRecord, hookimpl

from chameleon_records._options import FilesOptions


@hookimpl
def chameleon_record_databases() -> Iterable[PluginRecord]:
    """Register the database ``files``, which opens a file, a folder or a URL."""
    yield RecordDatabaseRecord(
        name="files",
        summary="a SQLite file, a folder on a share, an exported file, or a URL to read from",
        options=FilesOptions,
        factory="chameleon_records._locations:open_files",
        place_option="location",
    )


@hookimpl
def chameleon_commands() -> Iterable[CommandRecord]:
    """The command ``chameleon records``."""
    summary = "Add to record databases; merge, list, export and prune them."
    factory = "chameleon_records._commands.group:command"
    yield CommandRecord(name="records", summary=summary, factory=factory)

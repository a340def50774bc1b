"""A click group that imports a command only when it is called, and gets commands from plugins."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import click
from chameleon_core.errors import PluginError
from chameleon_core.plugins.factory import load_factory
from chameleon_core.plugins.first_party import CORE
from chameleon_core.plugins.registry import default_registry
from chameleon_core.words import did_you_mean
from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """A click group that knows the names and summaries of its commands without importing them.

    Args:
        built_in: lines for ``--help`` about the commands of this package, by name. Each command is
            the ``command`` of a module with its name, which is imported only when it is needed.
            They come before plugins' commands, so that no plugin can replace a command such as
            ``run``.
        logging: the commands of this package that log. The others do not import structlog, which
            is slow to import.
    """

    def __init__(
        self, *args: Any, built_in: Mapping[str, str], logging: Container[str], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._built_in = built_in
        self._logging = logging

    def logs(self, name: str | None) -> bool:
        """Whether a command may log. Commands of plugins may."""
        return name is not None and (name in self._logging or name not in self._built_in)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self._summaries())

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        factory = self._factory(cmd_name)
        if factory is None:
            return None
        command = load_factory(factory)
        if not isinstance(command, click.Command):
            raise PluginError(
                f"command '{cmd_name}' is a {type(command).__name__} and no click command",
                hint=f"{factory!r} must be made with @click.command()",
            )
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        known = name.startswith("-") or self._factory(name) is not None
        if not known and not ctx.resilient_parsing:
            errors = "".join(f"\n{error}" for error in default_registry().errors)
            ctx.fail(f"unknown command '{name}'{did_you_mean(name, self._summaries())}{errors}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands, with summaries, without importing the commands."""
        summaries = self._summaries().items()
        items = [
            CompletionItem(key, help=text) for key, text in summaries if key.startswith(incomplete)
        ]
        # The base class `Command` completes options without importing commands.
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """List the names and summaries of commands, without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._summaries().items()))

    def _summaries(self) -> dict[str, str]:
        entries = default_registry().entries("commands")
        plugins = {entry.name: entry.record.summary for entry in entries}
        return {**plugins, **self._built_in}

    def _factory(self, name: str) -> str | None:
        if name in self._built_in:
            return f"chameleon_cli.{name}:command"
        if name.rpartition(":")[2] not in default_registry().names("commands"):
            return None
        # A short name means this project's command; plugins' commands of the same name need the
        # full name.
        factory: str = default_registry().record("commands", name, author=CORE).factory
        return factory

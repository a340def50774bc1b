"""``chameleon plugins``: what is installed, its options, and what failed to load."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import attrs
import click
from chameleon_core.pipeline.jsonable import default_of
from chameleon_core.plugins.kinds import KINDS
from chameleon_core.plugins.manager import Registration
from chameleon_core.plugins.records import OperatorRecord
from chameleon_core.plugins.registry import Registry, default_registry

from chameleon_cli.kinds import kind_of
from chameleon_cli.plugins_check import command as check

_LIST = "list"


class _Plugins(click.Group):
    """Lists where no other command is named: ``plugins``, ``plugins explorers``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else [_LIST, *args])


@click.group("plugins", cls=_Plugins)
def command() -> None:
    """List what is installed, all of it or one KIND, as in `chameleon plugins explorers`.

    `chameleon plugins check NAME` checks that one of them does what it must.
    """


command.add_command(check)


@command.command(_LIST)
@click.argument("kind", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--options", "with_options", is_flag=True, help="List the options of each as well.")
def listed(kind: str | None, as_json: bool, with_options: bool) -> None:
    """List what is installed, all of it or one KIND (explorers, say)."""
    kinds = list(KINDS) if kind is None else [kind_of(kind).name]
    registry = default_registry()
    if as_json:
        click.echo(json.dumps(_as_json(registry, kinds), indent=2))
    else:
        _print(registry, kinds, with_options=with_options)
    for error in registry.errors:
        click.echo(f"warning: {error}", err=True)


def options_of(record: Any) -> list[dict[str, Any]]:
    """The options of a record: name, type as text, default as JSON values (null: required)."""
    operator = isinstance(record, OperatorRecord)
    given = record.arguments if operator else getattr(record, "options", None)
    if given is None:
        return []
    return [
        {
            "name": field.alias,
            "type": getattr(field.type, "__name__", str(field.type)),
            "required": field.default is attrs.NOTHING,
            "default": _default(field),
            "help": field.metadata.get("help", ""),
        }
        for field in attrs.fields(given)
        if field.init
    ]


def _default(field: attrs.Attribute[Any]) -> Any:
    default = default_of(field)
    return None if default is attrs.NOTHING else default


def _as_json(registry: Registry, kinds: list[str]) -> dict[str, Any]:
    return {
        "plugins": [
            {
                "kind": kind,
                "name": entry.name,
                "summary": entry.record.summary,
                "distribution": entry.distribution,
                "options": options_of(entry.record),
            }
            for kind in kinds
            for entry in registry.entries(kind)
        ],
        "errors": [attrs.asdict(error) for error in registry.errors],
    }


def _print(registry: Registry, kinds: list[str], *, with_options: bool) -> None:
    for kind in kinds:
        entries = registry.entries(kind)
        if not entries:
            continue
        click.secho(kind, bold=True)
        counts = Counter(entry.name for entry in entries)
        shown = [_shown(entry, counts[entry.name]) for entry in entries]
        width = max(map(len, shown))
        for name, entry in zip(shown, entries, strict=True):
            click.echo(f"  {name:{width}}  {entry.record.summary}")
            for option in options_of(entry.record) if with_options else ():
                default = "required" if option["required"] else json.dumps(option["default"])
                about = f"  {option['help']}" if option["help"] else ""
                click.echo(f"    {option['name']}: {default}{about}")


def _shown(entry: Registration, count: int) -> str:
    return entry.name if count == 1 else f"{entry.distribution}:{entry.name}"

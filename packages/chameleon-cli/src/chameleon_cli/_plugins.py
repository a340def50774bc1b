"""``chameleon plugins``: lists installed plugins, options and load errors, and checks plugins."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

import attrs
import click
from chameleon_core.api import Registration, Registry, words
from chameleon_core.plugin_api import (
    ConfigError,
    ExitCode,
    Kind,
    OperatorRecord,
    PluginError,
    load_factory,
)

from chameleon_cli._json_schema.types import default_of
from chameleon_cli._kinds import kind_named, kind_of
from chameleon_cli._main import debugging

_LIST = "list"


class _Plugins(click.Group):
    """A group whose default command is ``list``, as in ``plugins`` and ``plugins explorers``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else [_LIST, *args])


@click.group("plugins", epilog="Example: chameleon plugins explorers --options", cls=_Plugins)
def command() -> None:
    """List installed plugins: all, or those of one KIND, as in `chameleon plugins explorers`.

    `chameleon plugins check NAME` checks that a plugin does what its kind must do.
    """


@command.command(_LIST, epilog="Example: chameleon plugins list explorers --json")
@click.argument("kind", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--options", "with_options", is_flag=True, help="List the options of each as well.")
def listed(kind: str | None, as_json: bool, with_options: bool) -> None:
    """List installed plugins: all, or those of one KIND, such as explorers."""
    registry = Registry.default()
    kinds = [*registry.kinds] if kind is None else [kind_of(kind, registry.kinds).name]
    if as_json:
        click.echo(json.dumps(_as_json(registry, kinds), indent=2))
    else:
        _print(registry, kinds, with_options=with_options)
    for error in registry.errors:
        click.echo(f"warning: {error}", err=True)


def options_of(record: Any) -> list[dict[str, Any]]:
    """The options of a plugin as JSON values: name, type, default, help and ``required``.

    Args:
        record: the record that the plugin registers.
    """
    operator = isinstance(record, OperatorRecord)
    options = record.arguments if operator else getattr(record, "options", None)
    if options is None:
        return []
    return [
        {
            "name": field.alias,
            "type": getattr(field.type, "__name__", str(field.type)),
            "required": field.default is attrs.NOTHING,
            "default": _default(field),
            "help": field.metadata.get("help", ""),
        }
        for field in attrs.fields(options)
        if field.init
    ]


def _default(field: attrs.Attribute[Any]) -> Any:
    default = default_of(field, Registry.default().classes)
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
        shown = [registry.full_name(entry) for entry in entries]
        width = max(map(len, shown))
        for name, entry in zip(shown, entries, strict=True):
            click.echo(f"  {name:{width}}  {entry.record.summary}")
            for option in options_of(entry.record) if with_options else ():
                default = "required" if option["required"] else json.dumps(option["default"])
                about = f"  {option['help']}" if option["help"] else ""
                click.echo(f"    {option['name']}: {default}{about}")


_OUTCOMES = "chameleon_testing.suites.base:outcomes"


@command.command(
    "check", epilog="Example: chameleon plugins check my-explorer --pipeline pipeline.yaml"
)
@click.argument("name")
@click.option(
    "--pipeline",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A pipeline that uses it: what it is tried on, and its options.",
)
@click.option("--no-draws", is_flag=True, help="It is the same for every seed, on purpose.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(name: str, pipeline: Path | None, no_draws: bool, as_json: bool) -> None:
    """Check that the plugin NAME does what its kind must do.

    NAME is the plugin's name in a pipeline. If plugins of several kinds have the name, write
    KIND:NAME, as in explorers:random. The exit code is 3 if a check fails.
    """
    registry = Registry.default()
    entry = find(registry, name)
    suite = _suite(registry.kinds[entry.kind])
    suite = type(suite.__name__, (suite,), {"record": entry.record})
    outcomes = load_factory(_OUTCOMES)
    attributes = _subjects(suite, pipeline)
    if no_draws:
        if not hasattr(suite, "draws"):
            raise ConfigError(
                f"the checks of {entry.kind} do not ask whether one draws random numbers",
                hint="leave --no-draws out",
            )
        attributes["draws"] = False
    tests = []
    for outcome in outcomes(suite, attributes):
        tests.append(outcome)
        if not as_json:
            _print_outcome(outcome)
        if outcome.error is not None and debugging():
            traceback.print_exception(outcome.error)
    broken = [error for error in registry.errors if error.plugin == entry.plugin]
    for error in broken:
        click.echo(f"warning: {error}", err=True)
    failed = sum(result.failure is not None for result in tests)
    if as_json:
        click.echo(json.dumps(_checked_json(entry, tests), indent=2))
    else:
        about = f"{registry.kinds[entry.kind].noun} '{entry.name}' of '{entry.distribution}'"
        skipped = sum(result.skipped is not None for result in tests)
        more = f", {skipped} skipped" if skipped else ""
        click.echo(f"{about}: {len(tests) - failed - skipped} checks passed, {failed} failed{more}")
    if failed:
        if not debugging() and any(result.error is not None for result in tests):
            click.echo("hint: `chameleon --debug plugins check` shows tracebacks", err=True)
        sys.exit(ExitCode.PLUGIN)


def find(registry: Registry, name: str) -> Registration:
    """The registered plugin that a name means, of any kind.

    Args:
        registry: the registry of plugins.
        name: ``name``, ``kind:name``, ``distribution:name`` or ``kind:distribution:name``. The kind
            may have all forms that ``kind_named`` accepts.

    Raises:
        PluginError: no plugin has this name, or two distributions have a plugin of this kind and
            name.
        ConfigError: plugins of several kinds have this name.
    """
    first, _, rest = name.partition(":")
    kind = kind_named(first, registry.kinds) if rest else None
    if kind is not None:
        return registry.find(kind.name, rest)
    distribution, _, short = name.rpartition(":")
    kinds = [
        kind
        for kind in registry.kinds
        if any(
            entry.name == short and distribution in {"", entry.distribution}
            for entry in registry.entries(kind)
        )
    ]
    if not kinds:
        known = {entry.name for kind in registry.kinds for entry in registry.entries(kind)}
        errors = "; ".join(map(str, registry.errors))
        raise PluginError(
            f"there is no plugin '{name}'{words.did_you_mean(short, sorted(known - {short}))}",
            hint="`chameleon plugins` lists what there is; `chameleon --plugin FOLDER plugins "
            f"check {name}` finds one that is not installed" + (f"; {errors}" if errors else ""),
        )
    if len(kinds) > 1:
        raise ConfigError(
            f"'{name}' is a plugin of {len(kinds)} kinds",
            hint=f"write {' or '.join(f'{kind}:{name}' for kind in kinds)}",
        )
    return registry.find(kinds[0], name)


def _suite(kind: Kind) -> Any:
    """The suite of conformance checks for a kind of plugin.

    Raises:
        PluginError: the distribution with the suites is not installed.
    """
    try:
        return load_factory(kind.conformance)
    except PluginError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and cause.name == "chameleon_testing":
            raise PluginError("the checks of plugins are not installed", hint=error.hint) from error
        raise


def _subjects(suite: Any, pipeline: Path | None) -> dict[str, Any]:
    """The attributes that a suite needs to try the plugin in a pipeline; empty without one."""
    if pipeline is None:
        return {}
    from chameleon_core.api import load_pipeline  # noqa: PLC0415 - only `--pipeline` needs it

    subjects: dict[str, Any] = suite.subjects(load_pipeline(pipeline))
    return subjects


def _print_outcome(outcome: Any) -> None:
    if outcome.failure is not None:
        click.echo(f"FAILED  {outcome.sentence}\n        {outcome.failure}")
    elif outcome.skipped is not None:
        click.echo(f"skipped {outcome.sentence}\n        {outcome.skipped}")
    else:
        click.echo(f"ok      {outcome.sentence}")


def _checked_json(entry: Registration, outcomes: list[Any]) -> dict[str, Any]:
    return {
        "kind": entry.kind,
        "name": entry.name,
        "distribution": entry.distribution,
        "checks": [
            attrs.asdict(outcome, filter=attrs.filters.exclude("error")) for outcome in outcomes
        ],
    }

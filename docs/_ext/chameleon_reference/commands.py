"""The page of commands: each with its arguments and options, as click knows them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
from chameleon_cli._main import chameleon
from chameleon_core._errors import ExitCode

from chameleon_reference.markdown import cell, code, section, table

# click's own, which every command has.
_EVERYWHERE = {"help"}


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command with the words it is called by, groups before their own commands."""
    yield from _below(chameleon, "chameleon", click.Context(chameleon, info_name="chameleon"))


def _below(
    command: click.Command, words: str, context: click.Context
) -> Iterator[tuple[str, click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                below = click.Context(inner, parent=context, info_name=name)
                yield from _below(inner, f"{words} {name}", below)


def commands_page() -> str:
    """Every command with its options, and the exit codes."""
    parts = [
        section(
            "Commands",
            "The commands of `chameleon` with their options, as `chameleon COMMAND --help` prints "
            "them. Results go to stdout; progress and errors go to stderr.",
            level=1,
        )
    ]
    for words, command in commands():
        context = click.Context(command, info_name=words)
        usage = " ".join([words, *command.collect_usage_pieces(context)])
        about = _paragraphs(command.help or "")
        rows = [
            [_names(row, context), _default(row, context), cell(getattr(row, "help", "") or "")]
            for row in command.params
            if isinstance(row, click.Option) and row.name not in _EVERYWHERE
        ]
        options = table(["option", "default", "meaning"], rows) if rows else ""
        example = (command.epilog or "").removeprefix("Example: ")
        shown = f"Example:\n\n```sh\n{example}\n```" if example else ""
        parts.append(section(f"`{words}`", f"```sh\n{usage}\n```", about, shown, options))
    codes = [[str(int(row)), row.name.lower().replace("_", " ")] for row in ExitCode]
    parts.append(section("Exit codes", table(["code", "meaning"], codes)))
    return "\n".join(parts)


def _paragraphs(text: str) -> str:
    """A command's help; click's mark for text that is not to be wrapped is left out."""
    return inspect.cleandoc(text.replace("\b\n", ""))


def _names(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value = "" if option.is_flag or option.count else f" {code(option.make_metavar(context))}"
    return cell(f"{names}{value}")


def _default(option: click.Option, context: click.Context) -> str:
    if option.required:
        return "required"
    if option.is_flag or option.multiple or not option.show_default:
        return ""
    return cell(code(str(option.get_default(context))))

"""The entry point of ``chameleon``: the group of commands, and errors with exit codes."""

from __future__ import annotations

import gc
import io
import os
import sys
import traceback
from collections.abc import Container, Mapping, Sequence
from typing import Any

import click
from chameleon_core.api import Registry, local_plugins, words
from chameleon_core.plugin_api import (
    ChameleonError,
    ExitCode,
    PipelineError,
    PluginError,
    load_factory,
)
from chameleon_system.api import this_processor
from click.shell_completion import CompletionItem

from chameleon_cli import _colours as colours
from chameleon_cli import _json_lines as json_lines
from chameleon_cli._streams import open_missing, outliving_readers


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

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        factory = self._factory(cmd_name)
        if factory is None:
            return None
        if not ctx.resilient_parsing:
            _warn_of_old_processor()
        if self.logs(cmd_name):
            # It imports structlog without rich, which the command's own import would bring along.
            load_factory("chameleon_cli._logs:configure")
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
            errors = "".join(f"\n{error}" for error in Registry.default().errors)
            ctx.fail(
                f"unknown command '{name}'{words.did_you_mean(name, self._summaries())}{errors}"
            )
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
        entries = Registry.default().entries("commands")
        plugins = {entry.name: entry.record.summary for entry in entries}
        return {**plugins, **self._built_in}

    def _factory(self, name: str) -> str | None:
        if name in self._built_in:
            return f"chameleon_cli._{name}:command"
        if name.rpartition(":")[2] not in Registry.default().names("commands"):
            return None
        # A short name means Chameleon's own command; plugins' commands of the same name need the
        # full name.
        author = "chameleon-tuner-cli"
        factory: str = Registry.default().record("commands", name, author=author).factory
        return factory


_SUMMARIES = {
    "run": "Tune the model of a pipeline, or continue an interrupted run.",
    "validate": "Check a pipeline and print it with every default written out.",
    "init": "Write a commented pipeline to start from.",
    "schema": "Print the JSON Schema of pipeline files, for editors.",
    "space": "Show the design space of each operator: knobs, sizes, first guesses.",
    "plugins": "List the installed plugins by kind, or check a plugin.",
    "status": "Show the progress of a run.",
    "best": "Show the best configurations of a run.",
    "env": "Show versions, processor and threads, on which results depend.",
}

_LOGGING = ("run", "status", "best")

_DEBUG = "CHAMELEON_DEBUG"
_LOG_FORMAT = "CHAMELEON_LOG_FORMAT"


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from chameleon_core.api import installed  # noqa: PLC0415 - only `--version` needs it

        click.echo(f"chameleon {installed().get('chameleon-tuner-core')}")
        context.exit()


def _warn_of_old_processor() -> None:
    """Warn of instructions that are missing, before a command imports a library that uses them."""
    processor = this_processor()
    if processor is None or not processor.missing_flags:
        return
    flags = ", ".join(processor.missing_flags)
    text = (
        f"this CPU ({processor.name or 'without a name'}) lacks {flags}: "
        "kernels are slow, and NumPy from 2.4 on, XGBoost and LightGBM may end with an illegal "
        "instruction"
    )
    hint = "use a CPU of the level x86-64-v2, or `numpy<2.4` without XGBoost and LightGBM"
    if "hypervisor" in processor.flags:
        hint = "choose the CPU model `host` for the virtual machine"
    _tell("warning", f"warning: {text}", hint=hint)


def _add_plugins(context: click.Context, option: click.Parameter, paths: tuple[str, ...]) -> None:
    """Add plugins before a command is looked up, because it may be theirs."""
    del option
    if not paths or context.resilient_parsing:
        return

    replacements = local_plugins.add(paths)
    Registry.default.cache_clear()
    for path, distribution in replacements:
        click.echo(f"{path} takes the place of the installed '{distribution}'", err=True)


def _take_log_format(context: click.Context, _: click.Parameter, form: str) -> None:
    if form == "json" and not context.resilient_parsing:
        json_lines.begin()


@click.group(
    cls=LazyGroup,
    built_in=_SUMMARIES,
    logging=_LOGGING,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--debug", is_flag=True, help=f"Show tracebacks and every log line (or {_DEBUG}=1).")
@click.option("-v", "--verbose", is_flag=True, help="Show more log lines.")
@click.option(
    "--plugin",
    multiple=True,
    metavar="PATH",
    is_eager=True,
    expose_value=False,
    callback=_add_plugins,
    help="Use a plugin that is not installed: its hooks module, package or folder.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    envvar=_LOG_FORMAT,
    expose_value=False,
    callback=_take_log_format,
    help=f"Write stderr as plain text, or as JSON lines (or {_LOG_FORMAT}=json).",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
def chameleon(context: click.Context, debug: bool, verbose: bool) -> None:
    """Tune tensor operators for the machine they run on.

    `chameleon init` writes a pipeline, `chameleon run` tunes what it describes. Results go to
    stdout, progress and errors to stderr.

    Exit codes: 0 ok, 1 no valid result, 2 usage or pipeline, 3 plugin, 4 device or target. 5 a
    required ratio was not reached, 70 internal error, 130 interrupted.
    """
    if debug:
        os.environ[_DEBUG] = "1"
    context.color = colours.asked_for()

    def start_logs() -> None:
        from chameleon_cli import _logs as logs  # noqa: PLC0415 - imports structlog

        logs.configure(debug=debugging(), verbose=verbose)

    # A command may call this later, if it knows only then whether it logs.
    context.obj = start_logs
    group = context.command
    if isinstance(group, LazyGroup) and group.logs(context.invoked_subcommand):
        start_logs()


def debugging() -> bool:
    """Whether to show tracebacks."""
    return os.environ.get(_DEBUG, "") not in {"", "0"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, and exit the process with its exit code.

    Args:
        arguments: the words after the command's name; if None, the arguments of this process.
    """
    open_missing()
    status = run(arguments)
    # At its end, Python searches all objects for garbage, which takes up to half a second.
    gc.freeze()
    sys.exit(status)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit code, one of ``ExitCode``.
    """
    with outliving_readers() as output:
        try:
            status = _run(arguments)
            problem = output.problem()
            # An exit code of a failed command says more than this problem, so it stays.
            return status if status or problem is None else _end_by(problem)
        finally:
            json_lines.end()


def _run(arguments: Sequence[str] | None) -> int:
    try:
        status = chameleon.main(
            args=None if arguments is None else list(arguments),
            prog_name="chameleon",
            standalone_mode=False,
        )
    except SystemExit as leaving:
        return _code_of(leaving.code)
    except BaseException as error:  # noqa: BLE001 - every way to end gets its exit code here
        return _end_by(error)
    return int(status) if isinstance(status, int) else int(ExitCode.OK)


def _code_of(code: object) -> int:
    if code is None or isinstance(code, int):
        return int(code or 0)
    click.echo(str(code), err=True)
    return int(ExitCode.NO_VALID_RESULT)


def _end_by(error: BaseException) -> int:
    """Tell the user about an error, and return the exit code of the command."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return _told("interrupted", ExitCode.INTERRUPTED)
    trace = "".join(traceback.format_exception(error)) if debugging() else None
    if isinstance(error, click.ClickException):
        return _told(_usage(error), error.exit_code, trace=trace)
    if isinstance(error, ChameleonError):
        # Every line of a pipeline's errors begins with a file and a line, as in a compiler's
        # messages.
        prefix = "" if isinstance(error, PipelineError) else "error: "
        text = f"{prefix}{error}"
        return _told(text, error.exit_code, hint=error.command_hint, trace=trace)
    again = f"run it again with {_DEBUG}=1 for the traceback, and report it"
    text = f"internal error: {type(error).__name__}: {error}"
    hint = again if trace is None else None
    return _told(text, ExitCode.INTERNAL, hint=hint, trace=trace)


def _told(text: str, code: int, *, hint: str | None = None, trace: str | None = None) -> int:
    """Write an error to stderr, its hint and its traceback, and return the exit code."""
    _tell("error", text, hint=hint, exit_code=code, traceback=trace)
    return code


def _tell(level: str, text: str, **more: Any) -> None:
    """Write a message to stderr. As plain text, it has no other fields than hint and traceback."""
    lines = json_lines.json_lines()
    if lines is not None:
        lines.say(level, text, **more)
        return
    click.echo(text, err=True)
    for line in (more.get("hint") or "").splitlines():
        click.echo(f"hint: {line}", err=True)
    if more.get("traceback") is not None:
        click.echo(more["traceback"], err=True, nl=False)


def _usage(error: click.ClickException) -> str:
    """The message of click about a wrong command line, with the usage of the command."""
    said = io.StringIO()
    error.show(said)
    return said.getvalue().rstrip("\n")

"""``chameleon init``: write a commented pipeline to start from."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
from chameleon_core.errors import ConfigError
from chameleon_core.pipeline.resolve import STAGES
from chameleon_core.plugins.registry import Registry, default_registry

_HEAD = """\
# A Chameleon pipeline. `chameleon validate FILE` checks it and prints every default,
# `chameleon plugins --options` lists what can stand here, `chameleon run FILE` tunes.

# What to tune: one key, the frontend. Here one convolution of ResNet-18.
model:
  operators:
    - conv2d:
        input: [1, 256, 14, 14]    # batch, channels, height, width
        filters: 256
        kernel: 3
        padding: 1
        layout: NHWC

# For which machine: 'native', or anything TVM takes.
target: native

# Where the stages below come from, unless they are chosen here.
# preset: default{presets}

"""

_TAIL = """
# How much may be spent, per operator; `scope: network` for all of them together.
budget:
  measurements: 64
  # wall_time: 20m

{required}seed: 0
# records: none          # measure what other runs have measured, too (docs/records.md)
# output: runs/{stem}    # the run folder, relative to where the command is given
"""

_REQUIRED = """\
# A result that must be reached: exit code 5 where it is not.
# baselines: [{baselines}]
# require: {{min_ratio: 0.9, against: {against}}}   # network_ratio: 1.0 for a whole network

"""


def template(registry: Registry, stem: str) -> str:
    """The commented pipeline.

    Args:
        registry: names what can be chosen.
        stem: the pipeline file's name without its suffix.
    """
    presets = registry.names("presets")
    lines = [_HEAD.replace("{presets}", f"    # {', '.join(presets)}" if presets else "")]
    for key, kind in STAGES.items():
        names = registry.names(kind)
        if names:
            lines.append(f"# {key}: {names[0]}    # {', '.join(names)}\n")
    baselines = registry.names("baselines")
    required = ""
    if baselines:
        required = _REQUIRED.format(baselines=", ".join(baselines), against=baselines[0])
    lines.append(_TAIL.format(required=required, stem=stem))
    return "".join(lines)


@click.command("init")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--force", is_flag=True, help="Replace the file where it exists.")
@click.option(
    "--plugin", "kind", metavar="KIND", help="Write a plugin's package: --plugin explorer NAME."
)
def command(file: Path | None, folder: Path | None, force: bool, kind: str | None) -> None:
    """Write a commented pipeline to FILE (pipeline.yaml).

    With --plugin KIND NAME [FOLDER] write a package with a plugin of that kind, which can be
    installed and changed; its tests pass.
    """
    if kind is not None:
        _write_plugin(kind, file, folder, force=force)
        return
    if folder is not None:
        raise ConfigError(
            f"one file can be written, and '{folder}' is a second one",
            hint="give the command again for it; with --plugin KIND it is a folder",
        )
    _write_pipeline(Path("pipeline.yaml") if file is None else file, force=force)


def _write_plugin(kind: str, name: Path | None, folder: Path | None, *, force: bool) -> None:
    from chameleon_cli.init_plugin import write_plugin  # noqa: PLC0415 - only where it is asked for

    if name is None:
        raise ConfigError(
            "the plugin has no name", hint=f"write `chameleon init --plugin {kind} my-{kind}`"
        )
    if force:
        raise ConfigError(
            "a package is never replaced, --force or not", hint="remove its folder, or name another"
        )
    place, check = write_plugin(kind, str(name), folder)
    click.echo(f"wrote {place}, a plugin that works; next:")
    for line in (f"cd {shlex.quote(str(place))}", "pip install -e '.[test]'", check):
        click.echo(f"  {line}")


def _write_pipeline(file: Path, *, force: bool) -> None:
    text = template(default_registry(), file.stem)
    try:
        with file.open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise ConfigError(
            f"{file} exists already", hint="name another file, or replace it with --force"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be written: {error.strerror or error}",
            hint="name a file in a folder that exists and may be written to",
        ) from error
    click.echo(f"wrote {file}; next: chameleon run {file}")

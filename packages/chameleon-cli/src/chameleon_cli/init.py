"""``chameleon init``: write a commented pipeline to start from."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from chameleon_core.errors import ConfigError
from chameleon_core.pipeline.resolve import DEFAULT_PRESET, STAGES
from chameleon_core.pipeline.yaml import dump_yaml
from chameleon_core.plugins.first_party import CORE
from chameleon_core.plugins.records import PresetRecord
from chameleon_core.plugins.registry import Registry, default_registry

from chameleon_cli.init_plugin import write_plugin

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

# For which machine: 'native', anything TVM takes, or {kind: llvm, mcpu: znver4, num-cores: 2}.
target: native
"""

_PRESET = """
# Where the stages below come from, unless they are chosen here.
# preset: default{presets}
"""

_DEFAULTS = """
# What is commented out below is the default, each with its reason. A section without `#` replaces
# it; a name alone, as in `explorer: random`, has that one's own defaults.
"""

_BUDGET = """
# How much may be spent, per operator; `scope: network` for all of them together.{reason}
budget:
  measurements: 64
  # wall_time: 20m
"""

_REQUIRED = """
# A result that must be reached: exit code 5 where it is not.
# require: {{min_ratio: 0.9, against: {against}}}   # network_ratio: 1.0 for a whole network
"""

_RECORDS = """
# What a run measures goes into a database of yours, and no run measures it again under the same
# conditions. `none` measures everything anew (docs/records.md).
# records: none
"""

_OUTPUT = """
# The run folder, relative to where the command is given; the same command continues what is there.
# output: runs/{stem}
"""


def template(registry: Registry, stem: str) -> str:
    """The commented pipeline.

    Args:
        registry: names what can be chosen.
        stem: the pipeline file's name without its suffix.
    """
    presets = registry.names("presets")
    default = _default(registry)
    reasons = {} if default is None else default.reasons
    chosen = {} if default is None else default.pipeline
    parts = [_HEAD, _PRESET.replace("{presets}", f"    # {', '.join(presets)}" if presets else "")]
    parts += [] if default is None else [_DEFAULTS]
    for key, kind in STAGES.items():
        names = registry.names(kind)
        if names:
            parts.append(_section(key, chosen.get(key, names[0]), reasons.get(key), names))
    baselines = registry.names("baselines")
    if baselines:
        named = chosen.get("baselines", baselines[:1])
        parts.append(_section("baselines", named, reasons.get("baselines"), baselines))
        parts.append(_REQUIRED.format(against=_name(named[-1])))
    reason = reasons.get("budget")
    parts.append(_BUDGET.format(reason="" if reason is None else f"\n{_comment(reason)}"))
    seed = reasons.get("seed")
    parts.append("\n" + ("" if seed is None else f"{_comment(seed)}\n") + "seed: 0\n")
    parts += [_RECORDS, _OUTPUT.replace("{stem}", stem)]
    return "".join(parts)


def _default(registry: Registry) -> PresetRecord | None:
    """The preset that applies where none is named; Chameleon's own, whoever has one as well."""
    if DEFAULT_PRESET not in registry.names("presets"):
        return None
    found: PresetRecord = registry.find("presets", DEFAULT_PRESET, author=CORE).record
    return found


def _section(key: str, value: Any, reason: str | None, names: Sequence[str]) -> str:
    """A key with its default, commented out, below its reason and above what else there is."""
    used = {_name(one) for one in (value if isinstance(value, list) else [value])}
    others = [name for name in names if name not in used]
    written = dump_yaml({key: value}, in_one_line=True).strip()
    lines = [
        *([] if reason is None else [_comment(reason)]),
        f"# {written.removeprefix('{').removesuffix('}')}",
        *([_comment(f"(also: {', '.join(others)})")] if others else []),
    ]
    return "\n" + "\n".join(lines) + "\n"


def _name(stage: Any) -> Any:
    return stage["name"] if isinstance(stage, Mapping) else stage


def _comment(text: str) -> str:
    return textwrap.fill(
        text,
        96,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )


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

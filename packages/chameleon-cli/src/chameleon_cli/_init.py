"""``chameleon init``: writes a commented pipeline, or a package with a small plugin."""

from __future__ import annotations

import contextlib
import importlib.util
import keyword
import re
import shlex
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from string import Template
from typing import Any

import click
from chameleon_core.api import Registry, dump_yaml, installed, words
from chameleon_core.plugin_api import ConfigError, Kind, PluginRecord, PresetRecord

from chameleon_cli._kinds import kind_of
from chameleon_cli._model_files import chosen_model, models_beside

_HEAD = """\
# A Chameleon pipeline. `chameleon run FILE` tunes the model of this file. `chameleon validate FILE`
# checks the file and prints every default. `chameleon plugins --options` lists all options.

# The model to tune. Its only key names the frontend that reads the model.
{model}

# The hardware to tune for: native, a target of TVM, or {kind: llvm, mcpu: znver4, num-cores: 2}.
target: native
"""

_MODEL = """\
model:
  operators:    # one convolution of ResNet-18
    - conv2d:
        input: [1, 256, 14, 14]    # batch, channels, height, width
        filters: 256
        kernel: 3
        padding: 1
        layout: NHWC"""
"""An example of a model, if the pipeline's folder has none."""

_PRESET = """
# The preset, which sets all stages that this file does not set.
# preset: default{presets}
"""

_DEFAULTS = """
# The lines below that begin with `# key:` show the defaults, each with its reason. To change one,
# remove the `#`. A stage that is only named, as in `explorer: random`, has its default options.
"""

_BUDGET = """
# The limits of tuning each operator. With `scope: network`, all operators share them.{reason}
budget:
{budget}
  # wall_time: 20m
"""

_REQUIRED = """
# The result that a run must reach. If it does not, `chameleon run` ends with exit code 5.
# require: {}
"""

_NETWORK_RATIO = "{network_ratio: 1.0}    # at least as fast as the fastest installed framework"

_RECORDS = """
# By default, a run adds its measurements to a database of your account. Later runs under the same
# conditions do not repeat them. With `none`, a run measures everything itself (docs/records.md).
# records: none
"""

_OUTPUT = """
# The run folder, relative to the working folder. The same command continues the run in this folder.
# output: runs/{stem}
"""


def template(registry: Registry, stem: str, model: PresetRecord | None = None) -> str:
    """The text of the commented pipeline.

    Args:
        registry: the registry of plugins whose names the comments list.
        stem: the name of the pipeline file without its suffix.
        model: a model, with the stages that suit it. If None, the pipeline has an example of an
            operator.
    """
    presets = registry.names("presets")
    default = registry.default_preset
    sections = {} if model is None else model.pipeline
    reasons = {**({} if default is None else default.reasons), **(model.reasons if model else {})}
    chosen = {} if default is None else default.pipeline
    shown = _MODEL if model is None else _line("model", sections["model"])
    if "model" in reasons:
        shown = f"{_comment(reasons['model'])}\n{shown}"
    parts = [_HEAD.replace("{model}", shown)]
    parts += [_PRESET.replace("{presets}", f"    # {', '.join(presets)}" if presets else "")]
    parts += [] if default is None else [_DEFAULTS]
    for key, kind in {**registry.stages, "baselines": "baselines"}.items():
        names = registry.names(kind)
        if not names:
            continue
        usual = chosen.get(key, names[:1] if key == "baselines" else names[0])
        value = sections.get(key, usual)
        parts.append(_section(key, value, reasons.get(key), names, fixed=key in sections))
        if key == "baselines":
            required = (
                f"{{min_ratio: 0.9, against: {_name(value[-1])}}}" if value else _NETWORK_RATIO
            )
            parts.append(_REQUIRED.format(required))
    reason = reasons.get("budget")
    budget = textwrap.indent(dump_yaml(sections.get("budget", {"measurements": 64})).rstrip(), "  ")
    comment = "" if reason is None else f"\n{_comment(reason)}"
    parts.append(_BUDGET.format(reason=comment, budget=budget))
    seed = reasons.get("seed")
    parts.append("\n" + ("" if seed is None else f"{_comment(seed)}\n") + "seed: 0\n")
    parts += [_RECORDS, _OUTPUT.replace("{stem}", stem)]
    return "".join(parts)


def _line(key: str, value: Any) -> str:
    """A key with its value as YAML on one line."""
    return dump_yaml({key: value}, in_one_line=True).strip().removeprefix("{").removesuffix("}")


def _section(key: str, value: Any, reason: str | None, names: Sequence[str], *, fixed: bool) -> str:
    """A key with the reason for its value before it, and the other possible names after it.

    The key is commented out if it has its default value.
    """
    used = {_name(entry) for entry in (value if isinstance(value, list) else [value])}
    others = [name for name in names if name not in used]
    lines = [
        *([] if reason is None else [_comment(reason)]),
        f"{'' if fixed else '# '}{_line(key, value)}",
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


@click.command("init", epilog="Example: chameleon init pipeline.yaml")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--model", metavar="SOURCE", help="The model: net.onnx, net.pt2 or net.py:function.")
@click.option(
    "--plugin", "kind", metavar="KIND", help="Write a plugin's package: --plugin explorer NAME."
)
def command(
    file: Path | None, folder: Path | None, force: bool, model: str | None, kind: str | None
) -> None:
    """Write a commented pipeline to FILE (pipeline.yaml), for the model in the same folder.

    A model is an ONNX file, a program of torch.export (.pt2), or a Python file. The Python file has
    a function that returns a torch module and its example inputs. If the folder has no model, the
    pipeline tunes a convolution as an example.

    With --plugin KIND NAME [FOLDER], write a package with a plugin of that kind. You can install
    the package and change it, and its tests pass.
    """
    if kind is not None:
        if model is not None:
            raise ConfigError("a plugin has no model", hint="give --model or --plugin")
        _write_plugin(kind, file, folder, force=force)
        return
    if folder is not None:
        raise ConfigError(
            f"one file can be written, and '{folder}' is a second one",
            hint="give the command again for it; with --plugin KIND it is a folder",
        )
    _write_pipeline(Path("pipeline.yaml") if file is None else file, model, force=force)


def _write_plugin(kind: str, name: Path | None, folder: Path | None, *, force: bool) -> None:
    if name is None:
        raise ConfigError(
            "the plugin has no name", hint=f"write `chameleon init --plugin {kind} my-{kind}`"
        )
    if force:
        raise ConfigError(
            "a package is never replaced, --force or not", hint="remove its folder, or name another"
        )
    path, check = write_plugin(kind, str(name), folder)
    click.echo(f"wrote {path}, a plugin that works; next:")
    for line in (f"cd {shlex.quote(str(path))}", "pip install -e '.[test]'", check):
        click.echo(f"  {line}")


def _write_pipeline(file: Path, source: str | None, *, force: bool) -> None:
    registry, folder = Registry.default(), file.parent
    if source is None:
        models = models_beside(registry, folder)
    else:
        models = [chosen_model(registry, folder, source)]
    text = template(registry, file.stem, models[0] if models else None)
    place = "name a file in a folder that exists and may be written to"
    with (
        _writing(file, taken="name another file, or replace it with --force", denied=place),
        file.open("w" if force else "x", encoding="utf-8") as stream,
    ):
        stream.write(text)
    quoted = shlex.quote(str(file))
    click.echo(f"wrote {file} for {_subject(models)}; next: chameleon run {quoted}")
    for other in models[1:]:
        command = ("chameleon", "init", "--model", str(folder / other.name), "--force", str(file))
        click.echo(f"  for {other.name}: {shlex.join(command)}")


@contextlib.contextmanager
def _writing(place: Path, *, taken: str, denied: str) -> Iterator[None]:
    """Turn errors of writing into a ``ConfigError`` with the next step: ``taken`` or ``denied``."""
    with ConfigError.on_os_error(f"{place} cannot be written", hint=denied):
        try:
            yield
        except FileExistsError as error:
            raise ConfigError(f"{place} exists already", hint=taken) from error


def _subject(models: Sequence[PresetRecord]) -> str:
    """The model that a pipeline tunes, as words of a message."""
    if not models:
        return "a convolution, as an example of a model"
    (first, *others) = models
    return f"{first.name}, of {len(models)} models the last changed" if others else first.name


_SUFFIX = ".template"
_PLACE = "module"
"""The folder in the templates that is renamed to the import package."""

_DISTRIBUTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
"""A distribution's name (PEP 508)."""


def write_plugin(kind: str, name: str, folder: Path | None) -> tuple[Path, str]:
    """Write the package of a new plugin.

    Args:
        kind: the kind of the plugin, in the singular or as ``chameleon plugins`` lists it.
        name: the name of the plugin, and of its distribution.
        folder: the folder to write. If None, a folder in the working folder, named after the
            plugin.

    Returns:
        The folder, and a command line that checks the plugin.

    Raises:
        ConfigError: the kind does not exist, the name is not possible, or the folder exists.
    """
    about = kind_of(kind)
    module = _module_of(name, about)
    root = Path(name) if folder is None else folder
    values = _values(about, name, module)
    files = {
        path: Template(text).substitute(values) for path, text in templates(about, module).items()
    }
    taken = "name another folder after the plugin's name"
    with _writing(root, taken=taken, denied="name a folder in one that may be written to"):
        root.mkdir(parents=True)
        for path, text in files.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    return root, f"chameleon plugins check {about.name}:{name}{values['check_options']}"


def templates(kind: Kind, module: str) -> dict[PurePosixPath, str]:
    """The template texts of a kind's package, by their paths in the package.

    Args:
        kind: the kind of the plugin.
        module: the name of the plugin's import package.
    """
    root = resources.files("chameleon_cli") / "_scaffold"
    layers = ["common", *(["stage"] if issubclass(kind.record, PluginRecord) else []), kind.name]
    texts: dict[PurePosixPath, str] = {}
    for layer in layers:
        for names, file in _walk(root / layer, ()):
            if names[-1].endswith(_SUFFIX):
                parts = [module if word == _PLACE else word for word in names]
                path = PurePosixPath(*parts).with_name(parts[-1].removesuffix(_SUFFIX))
                texts[path] = file.read_text(encoding="utf-8")
    return texts


def _walk(
    folder: Traversable, path: tuple[str, ...]
) -> Sequence[tuple[tuple[str, ...], Traversable]]:
    files: list[tuple[tuple[str, ...], Traversable]] = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        here = (*path, entry.name)
        files += _walk(entry, here) if entry.is_dir() else [(here, entry)]
    return files


def _module_of(name: str, kind: Kind) -> str:
    """The import package for a new plugin's name. Raises an error if the name is taken."""
    if not _DISTRIBUTION.fullmatch(name):
        raise ConfigError(
            f"'{name}' can be no distribution's name",
            hint="a name is made of letters and digits, with '-', '_' and '.' between them (PEP "
            "508), such as my-explorer",
        )
    module = re.sub(r"[-_.]+", "_", name).lower()
    if not module.isidentifier() or keyword.iskeyword(module):
        raise ConfigError(
            f"'{name}' cannot be imported: '{module}' is no name of a module",
            hint="begin with a letter, and use none of Python's own words, as in my-explorer",
        )
    if module in sys.stdlib_module_names or importlib.util.find_spec(module) is not None:
        raise ConfigError(
            f"'{name}' would be imported as '{module}', which is a module already",
            hint="choose a name of your own, as in my-explorer",
        )
    for entry in Registry.default().entries(kind.name):
        if entry.name == name:
            raise ConfigError(
                f"there is {words.with_article(kind.noun)} '{name}' already, of "
                f"'{entry.distribution}'",
                hint="choose a name of your own",
            )
    return module


def _values(kind: Kind, name: str, module: str) -> Mapping[str, str]:
    """The values of the placeholders in templates."""
    folder = resources.files("chameleon_cli") / "_scaffold" / kind.name
    about: dict[str, Any] = tomllib.loads((folder / "about.toml").read_text(encoding="utf-8"))
    files = {path.name for path in templates(kind, module)}
    needed = [_ours(name) for name in about["chameleon"]] + about["others"]
    subject = about.get("checked_with", "")
    usage = [
        sentence
        for file, sentence in (
            ("pipeline.yaml", "`chameleon run pipeline.yaml` uses it."),
            ("bench.yaml", "`chameleon bench bench.yaml` compares it."),
        )
        if file in files
    ]
    return {
        "name": name,
        "distribution": name,
        "module": module,
        "Class": "".join(word.capitalize() for word in module.split("_")),
        "kind": kind.name,
        "noun": kind.noun,
        "stem": kind.name.removesuffix("s"),
        "hook": kind.hook,
        "summary": about["summary"],
        "suites": kind.conformance.partition(":")[0],
        "Suite": kind.conformance.partition(":")[2],
        "dependencies": ", ".join(f'"{requirement}"' for requirement in needed),
        "test_dependencies": "".join(f', "{_ours(name)}"' for name in about["testing"]),
        "check_options": f" --pipeline {subject}" if subject else "",
        "usage": "\n" + " ".join(usage) + "\n" if usage else "",
    }


def _ours(short: str) -> str:
    """The requirement of one of this project's distributions, up to the next major version."""
    name = f"chameleon-tuner-{short}"
    version = installed().get("chameleon-tuner-core")
    if version is None:
        return name
    major, minor, *_ = version.split(".")
    return f"{name}>={major}.{minor},<{int(major) + 1}"

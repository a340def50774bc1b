"""``chameleon init --plugin``: a package with a small plugin that works, to start from.

Its files are templates in the folder ``scaffold``: those of all kinds, of all stages, and of one
kind, the last of which win.
"""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from string import Template
from typing import Any

from chameleon_core.errors import ConfigError
from chameleon_core.plugins import STAGE_KINDS, Kind
from chameleon_core.plugins.first_party import CORE
from chameleon_core.plugins.registry import default_registry
from chameleon_core.versions import versions
from chameleon_core.words import with_article

from chameleon_cli.kinds import kind_of

_SUFFIX = ".template"
_PLACE = "module"
"""The folder in the templates that gets the import package's name."""

_DISTRIBUTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
"""A distribution's name (PEP 508)."""


def write_plugin(kind: str, name: str, folder: Path | None) -> tuple[Path, str]:
    """Write the package of a new plugin.

    Args:
        kind: a kind, in the singular or as ``chameleon plugins`` lists it.
        name: of the plugin, and of its distribution.
        folder: where to; one named after the plugin, in the working folder, where None.

    Returns:
        The folder, and the words of a command that checks the plugin there.

    Raises:
        ConfigError: there is no such kind, the name can be none, or the folder exists.
    """
    about = kind_of(kind)
    module = _module_of(name, about)
    place = Path(name) if folder is None else folder
    values = _values(about, name, module)
    files = {
        path: Template(text).substitute(values) for path, text in templates(about, module).items()
    }
    try:
        place.mkdir(parents=True)
        for path, text in files.items():
            file = place / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except FileExistsError as error:
        raise ConfigError(
            f"{place} exists already", hint="name another folder after the plugin's name"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{place} cannot be written: {error.strerror or error}",
            hint="name a folder in one that may be written to",
        ) from error
    return place, f"chameleon plugins check {about.name}:{name}{values['check_options']}"


def templates(kind: Kind, module: str) -> dict[PurePosixPath, str]:
    """The texts of a kind's package, by their paths in it.

    Args:
        kind: what the plugin is.
        module: the name of its import package.
    """
    root = resources.files("chameleon_cli") / "scaffold"
    layers = ["common", *(["stage"] if kind.name in STAGE_KINDS else []), kind.name]
    found: dict[PurePosixPath, str] = {}
    for layer in layers:
        for words, file in _walk(root / layer, ()):
            if words[-1].endswith(_SUFFIX):
                parts = [module if word == _PLACE else word for word in words]
                path = PurePosixPath(*parts).with_name(parts[-1].removesuffix(_SUFFIX))
                found[path] = file.read_text(encoding="utf-8")
    return found


def _walk(
    folder: Traversable, words: tuple[str, ...]
) -> Sequence[tuple[tuple[str, ...], Traversable]]:
    found: list[tuple[tuple[str, ...], Traversable]] = []
    for one in sorted(folder.iterdir(), key=lambda one: one.name):
        here = (*words, one.name)
        found += _walk(one, here) if one.is_dir() else [(here, one)]
    return found


def _module_of(name: str, kind: Kind) -> str:
    """The import package of a new plugin's name, which must not be taken."""
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
    if name in default_registry().names(kind.name):
        owner = default_registry().entries(kind.name)
        (distribution, *_) = [one.distribution for one in owner if one.name == name]
        raise ConfigError(
            f"there is {with_article(kind.noun)} '{name}' already, of '{distribution}'",
            hint="choose a name of your own",
        )
    return module


def _values(kind: Kind, name: str, module: str) -> Mapping[str, str]:
    """What stands for the names in templates."""
    folder = resources.files("chameleon_cli") / "scaffold" / kind.name
    about: dict[str, Any] = tomllib.loads((folder / "about.toml").read_text(encoding="utf-8"))
    files = {path.name for path in templates(kind, module)}
    needed = [_ours(one) for one in about["chameleon"]] + about["others"]
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
        "dependencies": ", ".join(f'"{one}"' for one in needed),
        "test_dependencies": "".join(f', "{_ours(one)}"' for one in about["testing"]),
        "check_options": f" --pipeline {subject}" if subject else "",
        "usage": "\n" + " ".join(usage) + "\n" if usage else "",
    }


def _ours(short: str) -> str:
    """One of this project's distributions, in a range that this version is the least of."""
    name = f"{CORE.removesuffix('core')}{short}"
    version = versions([CORE])[CORE]
    if version is None:
        return name
    major, minor, *_ = version.split(".")
    return f"{name}>={major}.{minor},<{int(major) + 1}"


__all__ = ["templates", "write_plugin"]

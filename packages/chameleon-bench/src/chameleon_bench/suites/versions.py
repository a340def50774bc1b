"""Which code a cell's result depends on: versions of distributions, and sources under work."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
from collections.abc import Collection, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from chameleon_core.plugins import KINDS, CommandRecord, PresetRecord, Registry
from chameleon_core.plugins.first_party import CORE
from chameleon_core.plugins.given import canonical, given

ALWAYS = {CORE: "chameleon_core", "chameleon-tuner-system": "chameleon_system"}
"""These distributions take part in every run; each with its package."""

_DIGITS = 12
"""A digest of sources has so many digits: two states of a package never share one by chance."""


def versions_of(documents: Any, registry: Registry) -> dict[str, str]:
    """The distributions whose plugins take part in a run, each with its version.

    Args:
        documents: JSON values, such as the expanded pipeline. Whatever bears a plugin's name in
            them takes part, the members of a portfolio for example: a distribution too many costs
            a repetition, one too few a wrong result.
        registry: knows who registers which name.

    Returns:
        The version of each distribution by name, with a digest of its sources where it is editable.
    """
    named = set(_texts(documents))
    packages = {name: {package} for name, package in ALWAYS.items()}
    for kind in KINDS:
        for entry in registry.entries(kind):
            if isinstance(entry.record, CommandRecord | PresetRecord):
                continue
            if named & {entry.name, f"{entry.distribution}:{entry.name}"}:
                package = entry.record.factory.partition(":")[0].partition(".")[0]
                packages.setdefault(entry.distribution, set()).add(package)
    return {name: version_of(name, frozenset(found)) for name, found in sorted(packages.items())}


@functools.cache
def version_of(distribution: str, packages: Collection[str]) -> str:
    """What tells one state of a distribution from another.

    Args:
        distribution: its name.
        packages: the import packages of it that matter, hashable.
    """
    if any(canonical(one.distribution) == canonical(distribution) for one in given()):
        return f"given, sources {_digest(packages)}"
    try:
        found = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"  # a registry made in this process
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    if not origin.get("dir_info", {}).get("editable"):
        return found.version
    return f"{found.version}, sources {_digest(packages)}"


def _digest(packages: Collection[str]) -> str:
    digest = hashlib.sha256()
    for file, name in _sources(packages):
        digest.update(f"{name}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:_DIGITS]


def _sources(packages: Collection[str]) -> Iterator[tuple[Path, str]]:
    """The files of import packages, each with its name in its package, in a fixed order."""
    for package in sorted(packages):
        spec = importlib.util.find_spec(package)
        if spec is None:
            continue
        for place in spec.submodule_search_locations or ():
            folder = Path(place)
            for file in sorted(folder.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    yield file, f"{package}/{file.relative_to(folder).as_posix()}"
        if spec.submodule_search_locations is None and spec.origin is not None:
            yield Path(spec.origin), package


def _texts(value: Any) -> Iterator[str]:
    """Every text in JSON values, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)

"""Versions of the distributions that took part in a run."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata

from chameleon_core._pipeline.schema import ResolvedPipeline
from chameleon_core._plugins.first_party import CORE, FIRST_PARTY
from chameleon_core._plugins.local import is_local

Versions = dict[str, str | None]
"""Versions by distribution; None for a distribution that is used without being installed."""


def distributions_of(pipeline: ResolvedPipeline) -> list[str]:
    """The distributions that register the stages of a pipeline, and ``chameleon-tuner-core``."""
    return sorted({CORE, *(stage.distribution for stage in pipeline.stages())} - {""})


def versions(distributions: Iterable[str]) -> Versions:
    """The installed version of each distribution."""
    return {name: _version(name) for name in distributions}


def installed(distributions: Iterable[str] = tuple(sorted(FIRST_PARTY))) -> dict[str, str]:
    """The version of each distribution that is installed; by default, of Chameleon's own.

    Nothing is imported.
    """
    return {name: version for name in distributions if (version := _version(name)) is not None}


def imported() -> list[str]:
    """The names of the distributions whose modules this process has imported so far."""
    names = {name.partition(".")[0] for name in tuple(sys.modules)}
    return sorted({brought.metadata["Name"] for brought, brings in _brings() if brings & names})


def changes(before: Mapping[str, str | None], now: Mapping[str, str | None]) -> dict[str, str]:
    """Describe which versions of distributions changed, such as ``2.0 -> 2.1``.

    Args:
        before: the earlier version of each distribution, by name. None if it was not installed.
        now: the present versions, in the same form.

    Returns:
        The change of each distribution whose version changed, by its name.
    """
    return {
        name: f"{before[name]} -> {version}"
        for name, version in now.items()
        if name in before and before[name] != version
    }


@functools.cache
def _version(name: str) -> str | None:
    if is_local(name):
        return None  # the installed distribution of this name is not used
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@functools.cache
def _brings() -> Sequence[tuple[metadata.Distribution, frozenset[str]]]:
    """Every installed distribution, and the names that its modules and packages begin with.

    ``metadata.packages_distributions`` makes a path of every installed file, which takes a second.
    """
    return [(each, frozenset(_top_level(each))) for each in metadata.distributions()]


def _top_level(distribution: metadata.Distribution) -> Iterator[str]:
    declared = (distribution.read_text("top_level.txt") or "").split()
    if declared:
        yield from declared
        return
    files = (line.strip('"') for line in (distribution.read_text("RECORD") or "").splitlines())
    firsts = {line.partition("/")[::2] for line in files}
    for name in {
        first if rest else inspect.getmodulename(first.partition(",")[0]) for first, rest in firsts
    }:
        if name and "." not in name:
            yield name

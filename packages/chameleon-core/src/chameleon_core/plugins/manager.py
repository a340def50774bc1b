"""Finds plugins and asks each what it registers, so that a broken one harms only itself.

pluggy alone lets the first exception out of a plugin end the host. Here everything a plugin
does is caught, remembered with the distribution it came from, and shown when it matters.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import Any

import attrs
import pluggy

from chameleon_core.plugins.check import complaint
from chameleon_core.plugins.hookspecs import PROJECT, RegistrationHooks
from chameleon_core.plugins.kinds import KINDS, Kind

MOST_RECORDS = 10_000
"""A hook that yields more is taken to be endless."""


@attrs.frozen(kw_only=True)
class Entry:
    """A record with the distribution that registered it."""

    kind: str
    name: str
    record: Any
    distribution: str


@attrs.frozen(kw_only=True)
class LoadError:
    """What went wrong with one plugin.

    Attributes:
        plugin: the plugin's name, that of its entry point.
        distribution: the distribution that brings it.
        message: what happened, as a sentence without its subject.
    """

    plugin: str
    distribution: str
    message: str

    def __str__(self) -> str:
        return f"plugin '{self.plugin}' of '{self.distribution}' {self.message}"


@attrs.frozen(kw_only=True)
class Candidate:
    """A plugin that is not loaded yet.

    Attributes:
        name: unique among the plugins of its distribution.
        distribution: the distribution that brings it.
        load: returns the module or object with the hooks; may raise anything.
    """

    name: str
    distribution: str
    load: Any


@attrs.define(kw_only=True)
class Loaded:
    """The outcome of loading: what is registered, what failed, and pluggy's manager."""

    entries: list[Entry] = attrs.field(factory=list)
    errors: list[LoadError] = attrs.field(factory=list)
    distributions: list[str] = attrs.field(factory=list)
    manager: pluggy.PluginManager


def installed() -> Iterator[Candidate]:
    """The plugins that installed distributions announce in the entry-point group."""
    for point in sorted(metadata.entry_points(group=PROJECT), key=lambda point: point.name):
        distribution = point.dist.name if point.dist is not None else "unknown"
        yield Candidate(name=point.name, distribution=distribution, load=point.load)


def load_plugins(candidates: Iterable[Candidate]) -> Loaded:
    """Load plugins and collect their records; never raises because of a plugin.

    What a plugin prints while it is loaded goes to stderr: stdout holds results alone.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(RegistrationHooks)
    loaded = Loaded(manager=manager)
    with contextlib.redirect_stdout(sys.stderr):
        for candidate in candidates:
            _load_one(candidate, loaded)
    return loaded


def _load_one(candidate: Candidate, loaded: Loaded) -> None:
    def fail(message: str) -> None:
        loaded.errors.append(
            LoadError(
                plugin=candidate.name, distribution=candidate.distribution, message=message
            )
        )

    if candidate.distribution not in loaded.distributions:
        loaded.distributions.append(candidate.distribution)
    name = f"{candidate.distribution}:{candidate.name}"
    plugin: Any = None
    try:
        plugin = candidate.load()
        loaded.manager.register(plugin, name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit and pytest's outcomes as well
        if plugin is not None and loaded.manager.has_plugin(name):
            loaded.manager.unregister(name=name)
        fail(f"failed to load: {_in_words(error)}")
        return
    for kind in KINDS.values():
        caller: pluggy.HookCaller = getattr(loaded.manager.hook, kind.hook)
        for implementation in caller.get_hookimpls():
            if implementation.plugin is plugin:
                for problem in _collect(kind, implementation.function, candidate, loaded):
                    fail(problem)


def _collect(kind: Kind, hook: Any, candidate: Candidate, loaded: Loaded) -> Iterator[str]:
    """Call one hook, keep its good records, yield what is wrong with the others."""
    records: list[Any] = []
    problem = ""
    try:
        given = hook()
        if given is None or isinstance(given, kind.record | str | bytes):
            problem = f"returns {given!r} from {kind.hook}, which must return a list of records"
        else:
            # A generator that fails half way keeps what it yielded before.
            for record in itertools.islice(given, MOST_RECORDS + 1):
                records.append(record)  # noqa: PERF402 - see above
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a plugin does
        problem = f"failed in {kind.hook}: {_in_words(error)}"
    if problem:
        yield problem
    if len(records) > MOST_RECORDS:
        yield f"returns more than {MOST_RECORDS} records from {kind.hook}"
        return
    names: set[str] = set()
    for record in records:
        wrong = complaint(kind, record)
        if wrong is None and record.name in names:
            wrong = f"the {kind.noun} '{record.name}' twice"
        if wrong is not None:
            yield f"registers {wrong}"
            continue
        names.add(record.name)
        loaded.entries.append(
            Entry(
                kind=kind.name,
                name=record.name,
                record=record,
                distribution=candidate.distribution,
            )
        )


def _in_words(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception whose own text raises
        text = ""
    lines = text.strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__

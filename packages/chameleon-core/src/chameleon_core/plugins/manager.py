"""Finds plugins and asks each what it registers, so that a broken one harms only itself.

pluggy alone lets the first exception out of a plugin end the host. Here everything a plugin
does is caught, remembered with the distribution it came from, and shown when it matters.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import pluggy

from chameleon_core.plugins.check import complaint
from chameleon_core.plugins.given import given, replaces
from chameleon_core.plugins.hookspecs import PROJECT, EventHooks, RegistrationHooks
from chameleon_core.plugins.implementations import (
    is_wrapper,
    refused_event_hook,
    refused_registration,
)
from chameleon_core.plugins.kinds import KINDS, Kind
from chameleon_core.words import did_you_mean

MOST_RECORDS = 10_000
"""A hook that yields more is taken to be endless."""


@attrs.frozen(kw_only=True)
class Registration:
    """A record with the plugin and the distribution that registered it."""

    kind: str
    name: str
    record: Any
    distribution: str
    plugin: str


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
class DiscoveredPlugin:
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
class LoadedPlugins:
    """The outcome of loading: what is registered, what failed, and pluggy's manager."""

    entries: list[Registration] = attrs.field(factory=list)
    errors: list[LoadError] = attrs.field(factory=list)
    distributions: list[str] = attrs.field(factory=list)
    manager: pluggy.PluginManager


def installed() -> Iterator[DiscoveredPlugin]:
    """The plugins that installed distributions announce in the entry-point group.

    And those that are given without being installed. Of one that is both, the given one is meant.
    """
    # Takes as long to import as all the rest here; workers, which look nothing up, do without.
    from importlib import metadata  # noqa: PLC0415

    instead = given()
    for point in sorted(metadata.entry_points(group=PROJECT), key=lambda point: point.name):
        distribution = point.dist.name if point.dist is not None else "unknown"
        if not any(replaces(one, distribution, point.module) for one in instead):
            yield DiscoveredPlugin(name=point.name, distribution=distribution, load=point.load)
    for one in instead:
        yield DiscoveredPlugin(name=one.module, distribution=one.distribution, load=one.load)


def load_plugins(candidates: Iterable[DiscoveredPlugin]) -> LoadedPlugins:
    """Load plugins and collect their records; never raises because of a plugin.

    What a plugin prints while it is loaded goes to stderr: stdout holds results alone.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(RegistrationHooks)
    manager.add_hookspecs(EventHooks)
    loaded = LoadedPlugins(manager=manager)
    with contextlib.redirect_stdout(sys.stderr):
        for candidate in candidates:
            _load_one(candidate, loaded)
    for kind in KINDS.values():
        if kind.unique:
            _drop_shared_names(kind, loaded)
    return loaded


def _load_one(candidate: DiscoveredPlugin, loaded: LoadedPlugins) -> None:
    if candidate.distribution not in loaded.distributions:
        loaded.distributions.append(candidate.distribution)
    loaded.errors += [
        LoadError(plugin=candidate.name, distribution=candidate.distribution, message=problem)
        for problem in _register(candidate, loaded)
    ]


def _register(candidate: DiscoveredPlugin, loaded: LoadedPlugins) -> Iterator[str]:
    """Register one plugin and collect its records; yields what is wrong with it."""
    name = f"{candidate.distribution}:{candidate.name}"
    try:
        plugin = candidate.load()
        loaded.manager.register(plugin, name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit and pytest's outcomes as well
        # pluggy keeps a plugin whose second hook it refuses.
        if loaded.manager.has_plugin(name):
            loaded.manager.unregister(name=name)
        yield f"failed to load: {_in_words(error)}"
        return
    yield from _unknown_hooks(plugin, loaded.manager)
    yield from _refused_event_hooks(plugin, loaded.manager)
    for kind in KINDS.values():
        for implementation in _implementations(loaded.manager, kind.hook, plugin):
            refused = refused_registration(implementation)
            if refused:
                yield f"implements {kind.hook} {refused}"
            if not is_wrapper(implementation):
                yield from _collect(kind, implementation.function, candidate, loaded)


def _refused_event_hooks(plugin: Any, manager: pluggy.PluginManager) -> Iterator[str]:
    for hook in (name for name in vars(EventHooks) if name.startswith(f"{PROJECT}_")):
        for implementation in _implementations(manager, hook, plugin):
            refused = refused_event_hook(implementation)
            if refused:
                yield f"implements {hook} {refused}"


def _implementations(
    manager: pluggy.PluginManager, hook: str, plugin: Any
) -> list[pluggy.HookImpl]:
    """A plugin's implementations of a hook."""
    caller: pluggy.HookCaller = getattr(manager.hook, hook)
    return [one for one in caller.get_hookimpls() if one.plugin is plugin]


def _unknown_hooks(plugin: Any, manager: pluggy.PluginManager) -> Iterator[str]:
    hooks = {name: caller for name, caller in vars(manager.hook).items() if name[0] != "_"}
    known = [name for name, caller in hooks.items() if caller.has_spec()]
    for caller in manager.get_hookcallers(plugin) or ():
        if not caller.has_spec():
            yield f"implements '{caller.name}', which is no hook{did_you_mean(caller.name, known)}"


def _collect(
    kind: Kind, hook: Any, candidate: DiscoveredPlugin, loaded: LoadedPlugins
) -> Iterator[str]:
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
            Registration(
                kind=kind.name,
                name=record.name,
                record=record,
                distribution=candidate.distribution,
                plugin=candidate.name,
            )
        )


def _drop_shared_names(kind: Kind, loaded: LoadedPlugins) -> None:
    """Leave each name of a kind to one distribution: the first-party one, or else to none."""
    owners: dict[str, list[str]] = {}
    for entry in loaded.entries:
        if entry.kind == kind.name:
            owners.setdefault(entry.name, []).append(entry.distribution)
    for entry in list(loaded.entries):
        shared = entry.kind == kind.name and len(owners[entry.name]) > 1
        if not shared or entry.distribution == kind.distribution:
            continue
        others = " and ".join(f"'{one}'" for one in owners[entry.name] if one != entry.distribution)
        loaded.entries.remove(entry)
        loaded.errors.append(
            LoadError(
                plugin=entry.plugin,
                distribution=entry.distribution,
                message=f"registers the {kind.noun} '{entry.name}', as {others} does; records of "
                "measurements hold the name, so it must be another one",
            )
        )


def _in_words(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception whose own text raises
        text = ""
    lines = text.strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__

"""Finds plugins and collects their records, so that a broken plugin does not break others.

With pluggy alone, the first exception of a plugin would end the process. This module catches all
exceptions of plugins, and keeps them with the name of the distribution for later messages.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import pluggy
from chameleon_system.api import pause_garbage_collection

from chameleon_core._plugins.check import complaint, of_kind
from chameleon_core._plugins.event_hooks import EventHooks
from chameleon_core._plugins.first_party import FIRST_PARTY
from chameleon_core._plugins.hookspecs import (
    PROJECT,
    is_wrapper,
    refused_event_hook,
    refused_registration,
)
from chameleon_core._plugins.kinds import KIND_OF_KINDS, KIND_OF_SECTIONS, KINDS, Kind, hook_specs
from chameleon_core._plugins.local import canonical, in_use
from chameleon_core._plugins.records import SectionRecord
from chameleon_core._words import did_you_mean

MOST_RECORDS = 10_000
"""A hook that yields more records than this counts as endless."""

_FAILED = "failed to load"
_MARK = f"{PROJECT}_impl"
"""The attribute that pluggy's marker sets on the implementation of a hook."""


@attrs.frozen(kw_only=True)
class Registration:
    """A record, with the plugin and the distribution that registered it."""

    kind: str
    name: str
    record: Any
    distribution: str
    plugin: str


@attrs.frozen(kw_only=True)
class LoadError:
    """A fault of one plugin.

    Attributes:
        plugin: the plugin's name, which is the name of its entry point.
        distribution: the distribution that the plugin belongs to.
        message: the fault, as a sentence without its subject, which is the plugin.
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
        name: the plugin's name, which is unique in its distribution.
        distribution: the distribution that the plugin belongs to.
        load: a function that returns the module or object with the hooks, and may raise any
            exception.
    """

    name: str
    distribution: str
    load: Any


@attrs.define(kw_only=True)
class LoadedPlugins:
    """The result of loading plugins: the registered records, the errors, and pluggy's manager.

    Attributes:
        kinds: the kinds of plugins by name: first Chameleon's own, then other distributions'.
        sections: the sections of the pipeline file by name: first Chameleon's own, then other
            distributions'.
    """

    kinds: dict[str, Kind] = attrs.field(factory=KINDS.copy)
    sections: dict[str, SectionRecord] = attrs.field(factory=dict)
    entries: list[Registration] = attrs.field(factory=list)
    errors: list[LoadError] = attrs.field(factory=list)
    distributions: list[str] = attrs.field(factory=list)
    manager: pluggy.PluginManager


def installed() -> Iterator[DiscoveredPlugin]:
    """The installed plugins (entry points) that no local plugin replaces, and the local plugins."""
    # This import takes as long as the rest of the module, and workers, which look up no plugin, do
    # not need it.
    from importlib import metadata  # noqa: PLC0415

    local = in_use()
    for point in sorted(metadata.entry_points(group=PROJECT), key=lambda point: point.name):
        distribution = point.dist.name if point.dist is not None else "unknown"
        if not any(plugin.replaces(distribution, point.module) for plugin in local):
            yield DiscoveredPlugin(name=point.name, distribution=distribution, load=point.load)
    for plugin in local:
        yield DiscoveredPlugin(
            name=plugin.module, distribution=plugin.distribution, load=plugin.load
        )


def load_plugins(candidates: Iterable[DiscoveredPlugin]) -> LoadedPlugins:
    """Load plugins and collect their records. A plugin's exceptions become errors in the result.

    Output of plugins while they are loaded goes to stderr, because stdout is only for results.

    Args:
        candidates: the plugins to load.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(EventHooks)
    loaded = LoadedPlugins(manager=manager)
    with contextlib.redirect_stdout(sys.stderr), pause_garbage_collection():
        plugins = [_Plugin(candidate=candidate, loaded=loaded) for candidate in candidates]
        plugins = [plugin for plugin in plugins if plugin.is_called(_FAILED, plugin.load)]
        # If two distributions have a section of the same name, this project's own comes first and
        # counts.
        for plugin in sorted(
            plugins, key=lambda plugin: canonical(plugin.candidate.distribution) not in FIRST_PARTY
        ):
            plugin.add(KIND_OF_KINDS, loaded.kinds)
            plugin.add(KIND_OF_SECTIONS, loaded.sections)
        manager.add_hookspecs(hook_specs([KIND_OF_KINDS, KIND_OF_SECTIONS, *loaded.kinds.values()]))
        for plugin in plugins:
            plugin.register()
    for kind in loaded.kinds.values():
        if kind.unique:
            _drop_shared_names(kind, loaded)
    return loaded


@attrs.define(kw_only=True)
class _Plugin:
    """A plugin that is being loaded. Its faults become errors of the result."""

    candidate: DiscoveredPlugin
    loaded: LoadedPlugins
    hooks: Any = None

    def note(self, problem: str) -> None:
        """Record a fault of the plugin."""
        plugin, owner = self.candidate.name, self.candidate.distribution
        self.loaded.errors.append(LoadError(plugin=plugin, distribution=owner, message=problem))

    def is_called(self, about: str, call: Callable[..., object], *arguments: Any) -> bool:
        """Call the plugin's code; if it raises, record the exception as a fault and return False.

        Args:
            about: the subject of the fault, such as the name of a hook.
            call: the function to call.
            arguments: the arguments of the call.
        """
        try:
            call(*arguments)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - even SystemExit
            self.note(f"{about}: {_in_words(error)}")
            return False
        return True

    def load(self) -> None:
        """Import the module or object with the hooks."""
        if self.candidate.distribution not in self.loaded.distributions:
            self.loaded.distributions.append(self.candidate.distribution)
        self.hooks = self.candidate.load()

    def add(self, kind: Kind, known: dict[str, Any]) -> None:
        """Add the plugin's records of a kind, if it implements the kind's registration hook.

        Chameleon calls this method for new kinds of plugins and for sections of the pipeline file.
        They are loaded before all other records, because records of new kinds depend on them.

        Args:
            kind: the kind whose hook is called.
            known: all records of the kind by name, to which the plugin's records are added.
        """
        if not hasattr(inspect.getattr_static(self.hooks, kind.hook, None), _MARK):
            return
        for record in self.records(kind, getattr(self.hooks, kind.hook)):
            if known.setdefault(record.name, record) is not record:
                self.note(f"registers the {kind.noun} '{record.name}', which there is already")

    def register(self) -> None:
        """Register the plugin and collect its records."""
        name = f"{self.candidate.distribution}:{self.candidate.name}"
        manager = self.loaded.manager
        if not self.is_called(_FAILED, manager.register, self.hooks, name):
            # If pluggy refuses a later hook, the plugin stays registered.
            if manager.has_plugin(name):
                manager.unregister(name=name)
            return
        self.note_unknown_hooks()
        for hook in vars(EventHooks):
            if hook.startswith(f"{PROJECT}_"):
                self.implementations(hook, refused_event_hook)
        for kind in self.loaded.kinds.values():
            for implementation in self.implementations(kind.hook, refused_registration):
                if not is_wrapper(implementation):
                    self.collect(kind, implementation.function)

    def collect(self, kind: Kind, hook: Callable[[], Any]) -> None:
        """Add the valid records of a hook to the result."""
        plugin, owner = self.candidate.name, self.candidate.distribution
        about = {"kind": kind.name, "distribution": owner, "plugin": plugin}
        for record in self.records(kind, hook):
            entry = Registration(name=record.name, record=record, **about)
            self.loaded.entries.append(entry)

    def implementations(
        self, hook: str, refused: Callable[[pluggy.HookImpl], str]
    ) -> list[pluggy.HookImpl]:
        """The plugin's implementations of a hook that Chameleon may call.

        An implementation that uses a refused option of pluggy is recorded as a fault.

        Args:
            hook: the name of the hook.
            refused: a function that returns the reason why an implementation is refused, or "".
        """
        caller: pluggy.HookCaller = getattr(self.loaded.manager.hook, hook)
        own = [each for each in caller.get_hookimpls() if each.plugin is self.hooks]
        for reason in filter(None, map(refused, own)):
            self.note(f"implements {hook} {reason}")
        return own

    def note_unknown_hooks(self) -> None:
        """Record a fault for each function that is marked as a hook, but is named like no hook."""
        manager = self.loaded.manager
        hooks = {name: caller for name, caller in vars(manager.hook).items() if name[0] != "_"}
        known = [name for name, caller in hooks.items() if caller.has_spec()]
        for caller in manager.get_hookcallers(self.hooks) or ():
            if not caller.has_spec():
                guess = did_you_mean(caller.name, known)
                self.note(f"implements '{caller.name}', which is no hook{guess}")

    def records(self, kind: Kind, hook: Callable[[], Any]) -> list[Any]:
        """Call a plugin's registration hook and return its valid records.

        Each invalid record is recorded as a fault of the plugin.

        Args:
            kind: the kind of plugin that the hook registers.
            hook: the plugin's implementation of the hook.
        """
        answer: list[Any] = []
        self.is_called(f"failed in {kind.hook}", self.read, kind, hook, answer)
        if len(answer) > MOST_RECORDS:
            self.note(f"returns more than {MOST_RECORDS} records from {kind.hook}")
            return []
        records: dict[str, Any] = {}
        for record in answer:
            wrong = complaint(kind, record)
            if wrong is None and record.name in records:
                wrong = f"the {kind.noun} '{record.name}' twice"
            if wrong is None:
                records[record.name] = of_kind(kind, record)
            else:
                self.note(f"registers {wrong}")
        return [*records.values()]

    def read(self, kind: Kind, hook: Callable[[], Any], records: list[Any]) -> None:
        """Call a plugin's registration hook, and append its records to a list.

        If the hook yields records and then raises an exception, the records before it are kept.

        Args:
            kind: the kind of plugin that the hook registers.
            hook: the plugin's implementation of the hook.
            records: the list to which records are appended.
        """
        answer = hook()
        if answer is None or isinstance(answer, kind.record | str | bytes):
            self.note(f"returns {answer!r} from {kind.hook}, which must return a list of records")
            return
        for record in itertools.islice(answer, MOST_RECORDS + 1):
            records.append(record)  # noqa: PERF402 - a generator may fail half way


def _drop_shared_names(kind: Kind, loaded: LoadedPlugins) -> None:
    """If plugins share a name, keep only those of the kind's own distribution."""
    owners: dict[str, list[str]] = {}
    for entry in loaded.entries:
        if entry.kind == kind.name:
            owners.setdefault(entry.name, []).append(entry.distribution)
    for entry in list(loaded.entries):
        shared = entry.kind == kind.name and len(owners[entry.name]) > 1
        if not shared or entry.distribution == kind.distribution:
            continue
        others = " and ".join(f"'{who}'" for who in owners[entry.name] if who != entry.distribution)
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
    except Exception:  # noqa: BLE001 - the text of an exception may raise another one
        text = ""
    lines = text.strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__

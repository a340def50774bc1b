"""Looks up the records of plugins by kind and name."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chameleon_core._errors import PluginError
from chameleon_core._plugins.first_party import CORE, FIRST_PARTY, how_to_install
from chameleon_core._plugins.kinds import STAGES, Kind
from chameleon_core._plugins.local import canonical
from chameleon_core._plugins.manager import (
    DiscoveredPlugin,
    LoadedPlugins,
    LoadError,
    Registration,
    installed,
    load_plugins,
)
from chameleon_core._plugins.records import PluginRecord, PresetRecord, SectionRecord, SpaceRecord
from chameleon_core._words import did_you_mean

DEFAULT_PRESET = "default"

_FIRST_KEYS = ("preset", "model", "target")
_LAST_KEYS = (
    *("fix", *STAGES, "warm_start", "records", "baselines", "budget", "require"),
    *("seed", "output"),
)


class UnknownNameError(PluginError):
    """No plugin of a kind is registered under a name."""


class AmbiguousNameError(PluginError):
    """Two distributions register a plugin of the same kind and name."""


class Registry:
    """All records of the loaded plugins, by kind and name.

    Args:
        loaded: the result of loading plugins, as ``Registry.load()`` and
            ``Registry.from_plugins()`` make it.

    Attributes:
        stages: the keys of stages in a pipeline file, and for each the kind of plugin that it
            names.
        manager: the plugin manager of pluggy, through which loaded plugins get the events of runs.
        kinds: the kinds of plugins by name, in the order in which a run uses them. Kinds that
            plugins add come last.
        sections: the sections that plugins add to pipeline files, by name.
        errors: the faults of plugins, found while loading them.
        distributions: the distributions that have a plugin's entry point, also if the plugin failed
            to load.
    """

    stages: Mapping[str, str] = STAGES

    def __init__(self, loaded: LoadedPlugins) -> None:
        self.manager = loaded.manager
        self.kinds: Mapping[str, Kind] = loaded.kinds
        self.sections: Mapping[str, SectionRecord] = loaded.sections
        self.errors: Sequence[LoadError] = tuple(loaded.errors)
        self.distributions: Sequence[str] = tuple(loaded.distributions)
        self._entries: dict[str, dict[str, list[Registration]]] = {
            kind: {} for kind in loaded.kinds
        }
        for entry in loaded.entries:
            self._entries[entry.kind].setdefault(entry.name, []).append(entry)

    @classmethod
    def load(cls) -> Registry:
        """Load all installed plugins, and those named with ``--plugin``."""
        return cls(load_plugins(installed()))

    @staticmethod
    @functools.cache
    def default() -> Registry:
        """The registry of the installed plugins, loaded once per process."""
        return Registry.load()

    @classmethod
    def from_plugins(cls, plugins: Iterable[Any], *, with_installed: bool = False) -> Registry:
        """Make a registry of plugins that are Python objects in this process.

        It is for tests, and for programs that define plugins without installing them.

        Args:
            plugins: modules or objects with hook implementations, or pairs ``(distribution,
                plugin)``. The distribution of a plugin without a pair is ``in-process``.
            with_installed: whether the registry also has the installed plugins.
        """
        candidates = list(installed()) if with_installed else []
        for number, entry in enumerate(plugins):
            owner, plugin = entry if isinstance(entry, tuple) else ("in-process", entry)
            candidates.append(
                DiscoveredPlugin(
                    name=f"plugin-{number}",
                    distribution=owner,
                    load=lambda plugin=plugin: plugin,
                )
            )
        return cls(load_plugins(candidates))

    @property
    def pipeline_keys(self) -> tuple[str, ...]:
        """All keys that a pipeline file may have, in the order in which they are written."""
        return (*_FIRST_KEYS, *self.sections, *_LAST_KEYS)

    @property
    def default_preset(self) -> PresetRecord | None:
        """Chameleon's own preset ``default``, or None if it is not installed."""
        if DEFAULT_PRESET not in self.names("presets"):
            return None
        preset: PresetRecord = self.record("presets", DEFAULT_PRESET, author=CORE)
        return preset

    def including(self, records: Iterable[tuple[str, PluginRecord]]) -> Registry:
        """A copy of this registry with plugins that exist only in this process.

        Args:
            records: pairs of a kind and a record. A record replaces plugins of its kind and name.
        """
        registry, known = copy.copy(self), {kind: {**own} for kind, own in self._entries.items()}
        for kind, record in records:
            known[kind][record.name] = [
                Registration(
                    kind=kind, name=record.name, record=record, distribution="", plugin="in-process"
                )
            ]
        registry._entries = known  # noqa: SLF001 - the object is of this class
        return registry

    def entries(self, kind: str) -> Sequence[Registration]:
        """All registered plugins of a kind, sorted by name. A name may occur twice.

        Args:
            kind: a key of ``kinds``.
        """
        return tuple(
            entry for _, entries in sorted(self._entries[kind].items()) for entry in entries
        )

    def names(self, kind: str) -> Sequence[str]:
        """The distinct names of a kind, sorted."""
        return tuple(sorted(self._entries[kind]))

    def find(self, kind: str, name: str, *, author: str | None = None) -> Registration:
        """The registered plugin of a kind and a name.

        Args:
            kind: a key of ``kinds``.
            name: the plugin's name, or ``distribution:name`` if two distributions use the name.
            author: the distribution that wrote the name, for example in a preset. If several
                plugins have the name, the distribution's own plugin is found, or else the
                first-party one. None if a user wrote the name; then an ambiguous name is an error.

        Raises:
            UnknownNameError: no plugin has this name. The message has similar names; the hint lists
                the installed plugins and those that failed to load.
            AmbiguousNameError: two distributions register the name.
        """
        distribution, colon, short = name.rpartition(":")
        entries = self._entries[kind].get(short, [])
        if colon:
            entries = [entry for entry in entries if _same(entry.distribution, distribution)]
        if not entries:
            raise self._unknown(kind, name)
        if len(entries) > 1 and author is not None:
            entries = _meant(entries, author)
        if len(entries) > 1:
            owners = [entry.distribution for entry in entries]
            raise AmbiguousNameError(
                f"{self.kinds[kind].noun} '{short}' is registered by "
                + " and ".join(f"'{owner}'" for owner in owners),
                hint=f"write '{owners[0]}:{short}' or '{owners[1]}:{short}'",
            )
        return entries[0]

    def record(self, kind: str, name: str, *, author: str | None = None) -> Any:
        """The record of a plugin, which is found as by ``find`` and with the same errors.

        Args:
            kind: a key of ``kinds``.
            name: the plugin's name, or ``distribution:name``.
            author: the distribution that wrote the name; None if a user wrote it.
        """
        return self.find(kind, name, author=author).record

    def full_name(self, entry: Registration) -> str:
        """The shortest name under which any author finds a registered plugin."""
        alone = len(self._entries[entry.kind][entry.name]) == 1
        return entry.name if alone else f"{entry.distribution}:{entry.name}"

    def classes(self, kind: str) -> dict[str, type]:
        """The class of each plugin's arguments in a pipeline file, by the name of the plugin.

        Plugins without arguments are left out.

        Args:
            kind: a kind whose records have ``arguments``, such as ``operators``.
        """
        classes = {entry.name: entry.record.arguments for entry in self.entries(kind)}
        return {name: arguments for name, arguments in classes.items() if arguments is not None}

    def space_of(self, operator: str) -> SpaceRecord | None:
        """The provider of design spaces that alone claims a kind of operator; None without one.

        Args:
            operator: the kind of operator (``Task.operator``).
        """
        for entry in self.entries("spaces"):
            record: SpaceRecord = entry.record
            if operator in record.operators:
                return record
        return None

    def create(self, kind: str, name: str, options: Any = None, context: Any = None) -> Any:
        """Import the class of a plugin, and make an object of it.

        Args:
            kind: a key of ``kinds``.
            name: the plugin's name, or ``distribution:name`` if two distributions use the name.
            options: an instance of the plugin's options class; None for default options.
            context: the context, for kinds whose factories take one.

        Raises:
            PluginError: the name is unknown or ambiguous, or the plugin cannot be imported or made.
        """
        record: PluginRecord = self.find(kind, name).record
        chosen = record.options() if options is None else options
        return self.kinds[kind].make_stage(record, chosen, context)

    def _unknown(self, kind: str, name: str) -> UnknownNameError:
        about = self.kinds[kind]
        names = self.names(kind)
        guess = did_you_mean(name.rpartition(":")[2], names)
        message = f"unknown {about.noun} '{name}'{guess}"
        listed = f"installed {about.noun}s: {', '.join(names)}"
        hints = [listed if names else f"no {about.noun} is installed"]
        if not any(_same(about.distribution, have) for have in self.distributions):
            hints.append(f"{about.distribution} brings some: {how_to_install(about.distribution)}")
        problems = map(str, self.errors)
        return UnknownNameError(message, hint="\n".join(["; ".join(hints), *problems]))


def _meant(entries: Sequence[Registration], author: str) -> list[Registration]:
    """The plugins of one name that its author may mean.

    These are the author's own plugin, or else the first-party one, or else all.
    """
    own = [entry for entry in entries if _same(entry.distribution, author)]
    ours = [entry for entry in entries if canonical(entry.distribution) in FIRST_PARTY]
    return next((some for some in (own, ours) if len(some) == 1), list(entries))


def _same(distribution: str, other: str) -> bool:
    """Whether two names are the same distribution (PEP 503)."""
    return canonical(distribution) == canonical(other)

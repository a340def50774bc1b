"""The hooks of the pluggy project ``chameleon``, one per kind of stage."""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from chameleon_core.plugins.records import CommandRecord, PluginRecord, PresetRecord

PROJECT = "chameleon"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class RegistrationHooks:
    """Hooks that name implementations. Each returns records; none does any work."""

    @hookspec
    def chameleon_frontends(self) -> Iterable[PluginRecord]:
        """Frontends: ``Class(options)`` is a ``chameleon_core.stages.Frontend``."""
        return ()

    @hookspec
    def chameleon_spaces(self) -> Iterable[PluginRecord]:
        """Space providers: ``Class(options)`` is a ``chameleon_core.stages.SpaceProvider``."""
        return ()

    @hookspec
    def chameleon_explorers(self) -> Iterable[PluginRecord]:
        """Explorers: ``Class(options, context)`` is a ``chameleon_core.stages.Explorer``."""
        return ()

    @hookspec
    def chameleon_cost_models(self) -> Iterable[PluginRecord]:
        """Cost models: ``Class(options, context)`` is a ``chameleon_core.stages.CostModel``."""
        return ()

    @hookspec
    def chameleon_samplers(self) -> Iterable[PluginRecord]:
        """Samplers: ``Class(options, context)`` is a ``chameleon_core.stages.Sampler``."""
        return ()

    @hookspec
    def chameleon_synthesizers(self) -> Iterable[PluginRecord]:
        """Synthesizers: ``Class(options, context)`` is a ``stages.Synthesizer``."""
        return ()

    @hookspec
    def chameleon_runners(self) -> Iterable[PluginRecord]:
        """Runners: ``Class(options)`` is a ``chameleon_core.stages.Runner``."""
        return ()

    @hookspec
    def chameleon_baselines(self) -> Iterable[PluginRecord]:
        """Baselines: ``Class(options)`` is a ``chameleon_core.stages.Baseline``."""
        return ()

    @hookspec
    def chameleon_schedulers(self) -> Iterable[PluginRecord]:
        """Schedulers of tasks: ``Class(options, context)`` is a ``loop.Scheduler``."""
        return ()

    @hookspec
    def chameleon_targets(self) -> Iterable[PluginRecord]:
        """Target resolvers: ``Class(options)`` is a ``chameleon_core.stages.TargetResolver``."""
        return ()

    @hookspec
    def chameleon_presets(self) -> Iterable[PresetRecord]:
        """Presets: whole pipelines under a name."""
        return ()

    @hookspec
    def chameleon_commands(self) -> Iterable[CommandRecord]:
        """Commands for the command line."""
        return ()

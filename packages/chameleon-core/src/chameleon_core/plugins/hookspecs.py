"""The hooks of the pluggy project ``chameleon``, one per kind of stage."""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from chameleon_core.events.records import (
    BatchMeasured,
    BatchProposed,
    BestImproved,
    CheckFinished,
    CheckStarted,
    ComparisonStarted,
    Measured,
    RunFinished,
    RunStarted,
    TaskFinished,
)
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
    def chameleon_rivals(self) -> Iterable[PluginRecord]:
        """Other tuners, for ``chameleon bench``: ``Class(options)`` is a ``stages.Rival``."""
        return ()

    @hookspec
    def chameleon_schedulers(self) -> Iterable[PluginRecord]:
        """Schedulers of tasks: ``Class(options, context)`` is a ``schedulers.Scheduler``."""
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


class EventHooks:
    """Hooks that are told what happens in a run. All implementations are called.

    One that raises is logged and switched off for the rest of the run. They are called in the
    process and thread of the search, so they should be quick.
    """

    @hookspec
    def chameleon_check_started(self, event: CheckStarted) -> None:
        """What is to be delivered is tried once, before there are tasks."""

    @hookspec
    def chameleon_check_finished(self, event: CheckFinished) -> None:
        """What is to be delivered can be."""

    @hookspec
    def chameleon_run_started(self, event: RunStarted) -> None:
        """A process begins, or continues, a run."""

    @hookspec
    def chameleon_batch_proposed(self, event: BatchProposed) -> None:
        """A batch is about to be measured."""

    @hookspec
    def chameleon_measured(self, event: Measured) -> None:
        """One configuration was measured and is on disk."""

    @hookspec
    def chameleon_batch_measured(self, event: BatchMeasured) -> None:
        """A batch is complete."""

    @hookspec
    def chameleon_best_improved(self, event: BestImproved) -> None:
        """A configuration is faster than every one before."""

    @hookspec
    def chameleon_task_finished(self, event: TaskFinished) -> None:
        """A task gets no further batch."""

    @hookspec
    def chameleon_comparison_started(self, event: ComparisonStarted) -> None:
        """A task's winners are about to be measured again, interleaved with the baselines."""

    @hookspec
    def chameleon_run_finished(self, event: RunFinished) -> None:
        """The run is at its end, winners compared."""

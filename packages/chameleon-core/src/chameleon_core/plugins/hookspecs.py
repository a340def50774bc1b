"""The hooks that name implementations, one per kind of plugin.

Each carries what there is to know of its kind (:class:`.Kind` is derived from it), an example, and
where the documentation is.
"""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugins.event_hooks import EventHooks
from chameleon_core.plugins.program_hooks import ProgramHooks, TransformHooks
from chameleon_core.plugins.records import CommandRecord, PluginRecord, PresetRecord
from chameleon_core.plugins.registration import PROJECT, hookimpl, hookspec, registers

_STAGES = "chameleon_core.stages"
_WHOLE = "chameleon-tuner"
_CORE = "chameleon-tuner-core"
_TVM = "chameleon-tuner-tvm"
_SAMPLERS = "chameleon-tuner-samplers"
_RECORDS = "chameleon-tuner-records"
_SUITES = "chameleon_testing.suites"


class RegistrationHooks(TransformHooks, ProgramHooks):
    """Hooks that name implementations. Each returns records; none does any work."""

    @registers(
        contract=f"{_STAGES}:Explorer",
        takes_context=True,
        distribution="chameleon-tuner-explorers",
        conformance=f"{_SUITES}:ExplorerSuite",
    )
    def chameleon_explorers(self) -> Iterable[PluginRecord]:
        """Explorers walk a design space: ``Class(options, context)``.

        Example:
            @hookimpl
            def chameleon_explorers():
                yield PluginRecord(
                    name="screening",
                    summary="The most promising of many random configurations",
                    options=Options,
                    factory="my_package.screening:Screening",
                )

        Documentation: docs/plugins.md#writing-a-plugin
        """
        return ()

    @registers(
        contract=f"{_STAGES}:CostModel",
        takes_context=True,
        distribution="chameleon-tuner-cost-models",
        conformance=f"{_SUITES}:CostModelSuite",
    )
    def chameleon_cost_models(self) -> Iterable[PluginRecord]:
        """Cost models predict which configurations are fast: ``Class(options, context)``.

        Example:
            @hookimpl
            def chameleon_cost_models():
                yield PluginRecord(
                    name="nearest",
                    summary="The mean of the nearest measured configurations",
                    options=Options,
                    factory="my_package.nearest:NearestModel",
                )

        Documentation: docs/plugins.md#kinds
        """
        return ()

    @registers(
        contract=f"{_STAGES}:Sampler",
        takes_context=True,
        distribution=_SAMPLERS,
        conformance=f"{_SUITES}:SamplerSuite",
    )
    def chameleon_samplers(self) -> Iterable[PluginRecord]:
        """Samplers keep few of the candidates: ``Class(options, context)``.

        Example:
            @hookimpl
            def chameleon_samplers():
                yield PluginRecord(
                    name="medoids",
                    summary="The candidate in the middle of each cluster",
                    options=Options,
                    factory="my_package.medoids:Medoids",
                )

        Documentation: docs/plugins.md#kinds
        """
        return ()

    @registers(
        contract=f"{_STAGES}:Synthesizer",
        takes_context=True,
        distribution=_SAMPLERS,
        conformance=f"{_SUITES}:SynthesizerSuite",
    )
    def chameleon_synthesizers(self) -> Iterable[PluginRecord]:
        """Synthesizers replace what need not be measured: ``Class(options, context)``.

        Example:
            @hookimpl
            def chameleon_synthesizers():
                yield PluginRecord(
                    name="median",
                    summary="The median of every knob instead of what was measured before",
                    options=Options,
                    factory="my_package.median:Median",
                )

        Documentation: docs/plugins.md#kinds
        """
        return ()

    @registers(
        contract=f"{_STAGES}:Runner",
        distribution="chameleon-tuner-runners",
        conformance=f"{_SUITES}:RunnerSuite",
    )
    def chameleon_runners(self) -> Iterable[PluginRecord]:
        """Runners build, check and time: ``Class(options)``.

        Example:
            @hookimpl
            def chameleon_runners():
                yield PluginRecord(
                    name="simulator",
                    summary="Cycles that a simulator of the accelerator counts",
                    options=Options,
                    factory="my_package.simulator:SimulatorRunner",
                )

        Documentation: docs/plugins.md#kinds
        """
        return ()

    @registers(
        contract=f"{_STAGES}:Baseline",
        distribution=_TVM,
        conformance=f"{_SUITES}:BaselineSuite",
    )
    def chameleon_baselines(self) -> Iterable[PluginRecord]:
        """Baselines are what a user would run instead: ``Class(options)``.

        Example:
            @hookimpl
            def chameleon_baselines():
                yield PluginRecord(
                    name="blis",
                    summary="Matrix products of the library BLIS",
                    options=Options,
                    factory="my_package.blis:BlisBaseline",
                )

        Documentation: docs/plugins.md#kinds
        """
        return ()

    @registers(
        contract=f"{_STAGES}:Rival",
        distribution=_TVM,
        conformance=f"{_SUITES}:RivalSuite",
    )
    def chameleon_rivals(self) -> Iterable[PluginRecord]:
        """Other tuners, for ``chameleon bench``: ``Class(options)``.

        Example:
            @hookimpl
            def chameleon_rivals():
                yield PluginRecord(
                    name="opentuner",
                    summary="OpenTuner's bandit of search techniques",
                    options=Options,
                    factory="my_package.opentuner:OpenTunerRival",
                )

        Documentation: docs/plugins.md#kinds
        """
        return ()

    @registers(
        contract="chameleon_core.schedulers:Scheduler",
        takes_context=True,
        distribution=_CORE,
        conformance=f"{_SUITES}:SchedulerSuite",
    )
    def chameleon_schedulers(self) -> Iterable[PluginRecord]:
        """Schedulers decide which task gets the next batch: ``Class(options, context)``.

        Example:
            @hookimpl
            def chameleon_schedulers():
                yield PluginRecord(
                    name="longest",
                    summary="The next batch where the network spends most time",
                    options=Options,
                    factory="my_package.longest:Longest",
                )

        Documentation: docs/plugins.md#kinds
        """
        return ()

    @registers(
        contract=f"{_STAGES}:RecordDatabase",
        distribution=_RECORDS,
        conformance=f"{_SUITES}:RecordDatabaseSuite",
    )
    def chameleon_record_databases(self) -> Iterable[PluginRecord]:
        """Record databases keep measurements beside the runs: ``Class(options)``.

        Example:
            @hookimpl
            def chameleon_record_databases():
                yield PluginRecord(
                    name="redis",
                    summary="Records on a server that a whole team uses",
                    options=Options,
                    factory="my_package.redis:RedisRecords",
                )

        Documentation: docs/plugins.md#kinds
        """
        return ()

    @registers(
        distribution=_WHOLE,
        conformance=f"{_SUITES}:PresetSuite",
    )
    def chameleon_presets(self) -> Iterable[PresetRecord]:
        """Presets: stages of a pipeline under a name.

        Example:
            @hookimpl
            def chameleon_presets():
                yield PresetRecord(
                    name="quick",
                    summary="A first impression in a minute",
                    pipeline={"explorer": "annealing", "budget": {"wall_time": "60s"}},
                )

        Documentation: docs/plugins.md#kinds
        """
        return ()

    @registers(
        distribution=_WHOLE,
        conformance=f"{_SUITES}:CommandSuite",
    )
    def chameleon_commands(self) -> Iterable[CommandRecord]:
        """Commands for the command line, made with click.

        Example:
            @hookimpl
            def chameleon_commands():
                yield CommandRecord(
                    name="upload",
                    summary="Send a run's records to the shared database",
                    factory="my_package.upload:command",
                )

        Documentation: docs/plugins.md#kinds
        """
        return ()


__all__ = ["PROJECT", "EventHooks", "RegistrationHooks", "hookimpl", "hookspec"]

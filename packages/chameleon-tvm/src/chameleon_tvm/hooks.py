"""Registers this package's plugins; imports no numerical library."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugin_api import (
    CommandRecord,
    InstructionRecord,
    OperatorRecord,
    PluginRecord,
    SpaceRecord,
    TargetRecord,
    TemplateRecord,
    hookimpl,
    recorder,
)

from chameleon_tvm._instructions.records import INSTRUCTIONS
from chameleon_tvm._operators.frontend_options import OperatorsOptions
from chameleon_tvm._operators.records import OPERATORS
from chameleon_tvm._rivals.options import MetaScheduleOptions
from chameleon_tvm._spaces.options import AutoOptions
from chameleon_tvm._spaces.sketch.options import SketchOptions
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._spaces.template.records import TEMPLATES

LISTINGS = "chameleon_tvm._building.winners:list_winners"
"""Starts a process that asks builders for their listings."""

_record = recorder("chameleon_tvm")

_AUTO = "A template if there is one for the operator and target, else sketches"
_TEMPLATE = "Hand-written convolutions (direct, Winograd) and products, for llvm and cuda"
_SKETCH = "MetaSchedule's sketches as knobs, for every operator and target"


@hookimpl
def chameleon_spaces() -> Iterable[PluginRecord]:
    """The design spaces of this package."""
    for name, summary, factory, options in (
        ("auto", _AUTO, "_spaces.auto:AutoSpace", AutoOptions),
        ("template", _TEMPLATE, "_spaces.template.provider:TemplateSpace", TemplateOptions),
        ("sketch", _SKETCH, "_spaces.sketch.provider:SketchSpace", SketchOptions),
    ):
        yield _record(name, summary, factory, options, SpaceRecord, listings=LISTINGS)


@hookimpl
def chameleon_operators() -> Iterable[OperatorRecord]:
    """The tensor operators of this package."""
    return OPERATORS


@hookimpl
def chameleon_templates() -> Iterable[TemplateRecord]:
    """The hand-written schedules of this package."""
    return TEMPLATES


@hookimpl
def chameleon_instructions() -> Iterable[InstructionRecord]:
    """The machine instructions that templates of this package multiply with."""
    return INSTRUCTIONS


@hookimpl
def chameleon_frontends() -> Iterable[PluginRecord]:
    """The frontends of this package."""
    summary = "Single tensor operators, written down in the pipeline file"
    factory = "_operators.frontend:OperatorsFrontend"
    yield _record("operators", summary, factory, OperatorsOptions)


@hookimpl
def chameleon_targets() -> Iterable[PluginRecord]:
    """The target resolver."""
    summary = "Everything TVM takes, the command-line form, tags, and 'native'"
    machine = "chameleon_tvm._commands.machine:describe_machine"
    yield _record("tvm", summary, "_device.targets:TVMTargets", kind=TargetRecord, machine=machine)


@hookimpl
def chameleon_baselines() -> Iterable[PluginRecord]:
    """The baseline of a user who does not tune."""
    summary = "TVM's kernel without tuning, in the task's own layouts"
    yield _record("untuned", summary, "_baselines.untuned:UntunedBaseline")


@hookimpl
def chameleon_commands() -> Iterable[CommandRecord]:
    """The command about the CPU that kernels are compiled for."""
    summary = "Describe the CPU of a target, or measure its memory's bandwidth."
    yield CommandRecord(name="cpu", summary=summary, factory="chameleon_tvm._commands.cpu:command")


@hookimpl
def chameleon_rivals() -> Iterable[PluginRecord]:
    """Other tuners, for comparisons."""
    summary = "TVM's own tuner, ms.tune_tir, in a process of its own"
    yield _record("metaschedule", summary, "_rivals.bench:MetaSchedule", MetaScheduleOptions)

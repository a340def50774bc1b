"""Registers this package's plugins; imports no numerical library."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugins import (
    CommandRecord,
    InstructionRecord,
    NoOptions,
    OperatorRecord,
    PluginRecord,
    TemplateRecord,
    hookimpl,
)

from chameleon_tvm.instructions.records import INSTRUCTIONS
from chameleon_tvm.operators.frontend_options import OperatorsOptions
from chameleon_tvm.operators.records import OPERATORS
from chameleon_tvm.rivals.options import MetaScheduleOptions
from chameleon_tvm.spaces.options import AutoOptions
from chameleon_tvm.spaces.sketch.options import SketchOptions
from chameleon_tvm.spaces.template.options import TemplateOptions
from chameleon_tvm.spaces.template.records import TEMPLATES

LISTINGS = "chameleon_tvm.building.winners:list_winners"
"""Starts a process that asks builders for their listings."""

SPACES = (
    PluginRecord(
        name="auto",
        summary="A template if there is one for the operator and target, else sketches",
        factory="chameleon_tvm.spaces.auto:AutoSpace",
        options=AutoOptions,
        listings=LISTINGS,
    ),
    PluginRecord(
        name="template",
        summary="Hand-written convolutions (direct, Winograd) and products, for llvm and cuda",
        factory="chameleon_tvm.spaces.template.provider:TemplateSpace",
        options=TemplateOptions,
        listings=LISTINGS,
    ),
    PluginRecord(
        name="sketch",
        summary="MetaSchedule's sketches as knobs, for every operator and target",
        factory="chameleon_tvm.spaces.sketch.provider:SketchSpace",
        options=SketchOptions,
        listings=LISTINGS,
    ),
)


@hookimpl
def chameleon_spaces() -> Iterable[PluginRecord]:
    """The design spaces of this package."""
    return SPACES


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
    yield PluginRecord(
        name="operators",
        summary="Single tensor operators, written down in the pipeline file",
        factory="chameleon_tvm.operators.frontend:OperatorsFrontend",
        options=OperatorsOptions,
        usage="chameleon export {folder} --to library -o {folder}/kernels",
    )


@hookimpl
def chameleon_targets() -> Iterable[PluginRecord]:
    """The target resolver."""
    yield PluginRecord(
        name="tvm",
        summary="Everything TVM takes, the command-line form, tags, and 'native'",
        factory="chameleon_tvm.device.targets:TVMTargets",
        options=NoOptions,
    )


@hookimpl
def chameleon_baselines() -> Iterable[PluginRecord]:
    """The baseline of a user who does not tune."""
    yield PluginRecord(
        name="untuned",
        summary="TVM's kernel without tuning, in the task's own layouts",
        factory="chameleon_tvm.baselines.untuned:UntunedBaseline",
        options=NoOptions,
    )


@hookimpl
def chameleon_commands() -> Iterable[CommandRecord]:
    """The command about the CPU that kernels are compiled for."""
    yield CommandRecord(
        name="cpu",
        summary="Show what a target's CPU is taken for; measure and keep its memory's rate.",
        factory="chameleon_tvm.commands.cpu:command",
    )


@hookimpl
def chameleon_rivals() -> Iterable[PluginRecord]:
    """Other tuners, for comparisons."""
    yield PluginRecord(
        name="metaschedule",
        summary="TVM's own tuner, ms.tune_tir, in a process of its own",
        factory="chameleon_tvm.rivals.bench:MetaSchedule",
        options=MetaScheduleOptions,
    )

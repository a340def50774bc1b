"""Plugins: the records that they register, the hooks that they implement, and their loading."""

from chameleon_core._plugins.factory import load_factory
from chameleon_core._plugins.hookspecs import PROJECT, hookimpl, hookspec
from chameleon_core._plugins.kinds import KINDS, STAGE_KINDS, Kind
from chameleon_core._plugins.manager import LoadError, Registration
from chameleon_core._plugins.records import (
    API_VERSION,
    CommandRecord,
    InstructionRecord,
    NoOptions,
    OperatorRecord,
    PluginRecord,
    PresetRecord,
    Section,
    SectionRecord,
    TemplateRecord,
)
from chameleon_core._plugins.registry import AmbiguousNameError, Registry, UnknownNameError

__all__ = [
    "API_VERSION",
    "KINDS",
    "PROJECT",
    "STAGE_KINDS",
    "AmbiguousNameError",
    "CommandRecord",
    "InstructionRecord",
    "Kind",
    "LoadError",
    "NoOptions",
    "OperatorRecord",
    "PluginRecord",
    "PresetRecord",
    "Registration",
    "Registry",
    "Section",
    "SectionRecord",
    "TemplateRecord",
    "UnknownNameError",
    "hookimpl",
    "hookspec",
    "load_factory",
]

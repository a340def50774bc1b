"""Plugins: what they register, the hooks they implement, how they are found and named."""

from chameleon_core.plugins.hookspecs import PROJECT, hookimpl, hookspec
from chameleon_core.plugins.records import API_VERSION, CommandRecord, NoOptions, PluginRecord, PresetRecord

__all__ = [
    "API_VERSION",
    "PROJECT",
    "CommandRecord",
    "NoOptions",
    "PluginRecord",
    "PresetRecord",
    "hookimpl",
    "hookspec",
]

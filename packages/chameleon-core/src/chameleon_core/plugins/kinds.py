"""The kinds of things a plugin can register, as the hook specs declare them."""

from __future__ import annotations

from chameleon_core.plugins.hookspecs import RegistrationHooks
from chameleon_core.plugins.records import PluginRecord
from chameleon_core.plugins.registration import Kind, kinds_of

KINDS: dict[str, Kind] = kinds_of(RegistrationHooks)
"""Every kind by its name, in the order of the flow."""

STAGE_KINDS: dict[str, Kind] = {
    name: kind for name, kind in KINDS.items() if kind.record is PluginRecord
}
"""The kinds that are made with options and used in a pipeline."""

__all__ = ["KINDS", "STAGE_KINDS", "Kind"]

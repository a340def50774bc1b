"""Registers this package's plugins."""

from __future__ import annotations

from chameleon_core.plugins import NoOptions, PluginRecord, PresetRecord, hookimpl

from chameleon_explorers.options import AnnealingOptions
from chameleon_explorers.presets import PRESETS


@hookimpl
def chameleon_explorers() -> list[PluginRecord]:
    """Explorers of this package."""
    return [
        PluginRecord(
            name="annealing",
            summary="Simulated annealing on the cost model's scores (AutoTVM's)",
            factory="chameleon_explorers.annealing:AnnealingExplorer",
            options=AnnealingOptions,
        ),
        PluginRecord(
            name="random",
            summary="Random unvisited configurations, ranked by the cost model",
            factory="chameleon_explorers.random_search:RandomExplorer",
            options=NoOptions,
        ),
    ]


@hookimpl
def chameleon_presets() -> tuple[PresetRecord, ...]:
    """Presets made of the built-in stages."""
    return PRESETS

"""Registers this package's plugins."""

from __future__ import annotations

from chameleon_core.plugins import NoOptions, PluginRecord, PresetRecord, hookimpl

from chameleon_explorers import options
from chameleon_explorers.ppo.options import PPOOptions
from chameleon_explorers.presets import MODEL_FREE, PRESETS, PUBLISHED


@hookimpl
def chameleon_explorers() -> list[PluginRecord]:
    """Explorers of this package."""
    return [
        PluginRecord(
            name="annealing",
            summary="Simulated annealing on the cost model's scores (AutoTVM's)",
            factory="chameleon_explorers.annealing:AnnealingExplorer",
            options=options.AnnealingOptions,
        ),
        PluginRecord(
            name="ppo",
            summary="An actor-critic that learns to walk the space (CHAMELEON's)",
            factory="chameleon_explorers.ppo.explorer:PPOExplorer",
            options=PPOOptions,
        ),
        PluginRecord(
            name="local",
            summary="Iterated local search, one knob a step, on measurements alone",
            factory="chameleon_explorers.local:LocalExplorer",
            options=options.LocalOptions,
        ),
        PluginRecord(
            name="droplet",
            summary="Coordinate descent with growing steps, on measurements alone",
            factory="chameleon_explorers.droplet:DropletExplorer",
            options=options.DropletOptions,
        ),
        PluginRecord(
            name="genetic",
            summary="AutoTVM's genetic algorithm, on measurements or on the cost model's scores",
            factory="chameleon_explorers.genetic:GeneticExplorer",
            options=options.GeneticOptions,
        ),
        PluginRecord(
            name="portfolio",
            summary="A bandit that shares the rounds among explorers by what they brought",
            factory="chameleon_explorers.portfolio:PortfolioExplorer",
            options=options.PortfolioOptions,
        ),
        PluginRecord(
            name="random",
            summary="Random unvisited configurations, ranked by the cost model",
            factory="chameleon_explorers.random_search:RandomExplorer",
            options=NoOptions,
        ),
    ]


@hookimpl
def chameleon_cost_models() -> list[PluginRecord]:
    """The model of explorers that need none."""
    return [
        PluginRecord(
            name="none",
            summary="No model, for explorers that learn from measurements alone",
            factory="chameleon_explorers.no_model:NoCostModel",
            options=NoOptions,
        )
    ]


@hookimpl
def chameleon_presets() -> tuple[PresetRecord, ...]:
    """Presets made of the built-in stages."""
    return (*PRESETS, *MODEL_FREE, *PUBLISHED)

"""Registers this package's plugins."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugin_api import (
    CostModelRecord,
    ExplorerRecord,
    PluginRecord,
    PresetRecord,
    hookimpl,
    recorder,
)

from chameleon_explorers import _options as options
from chameleon_explorers._ppo.options import PPOOptions
from chameleon_explorers._presets import MODEL_FREE, PRESETS, PUBLISHED

_record = recorder("chameleon_explorers")


@hookimpl
def chameleon_explorers() -> Iterable[PluginRecord]:
    """Explorers of this package."""
    annealing = "Simulated annealing on the cost model's scores (AutoTVM's)"
    ppo = "An actor-critic that learns to walk the space (CHAMELEON's)"
    local = "Iterated local search, one knob a step, on measurements alone"
    droplet = "Coordinate descent with growing steps, on measurements alone"
    genetic = "AutoTVM's genetic algorithm, on measurements or on the cost model's scores"
    portfolio = "A bandit that shares the rounds among explorers by what they brought"
    random = "Random unvisited configurations, ranked by the cost model"
    guided = {"kind": ExplorerRecord, "needs_cost_model": True}
    factory = "_annealing:AnnealingExplorer"
    yield _record("annealing", annealing, factory, options.AnnealingOptions, **guided)
    yield _record("ppo", ppo, "_ppo.explorer:PPOExplorer", PPOOptions, **guided)
    yield _record("local", local, "_local:LocalExplorer", options.LocalOptions)
    yield _record("droplet", droplet, "_droplet:DropletExplorer", options.DropletOptions)
    yield _record("genetic", genetic, "_genetic:GeneticExplorer", options.GeneticOptions)
    yield _record("portfolio", portfolio, "_portfolio:PortfolioExplorer", options.PortfolioOptions)
    yield _record("random", random, "_no_model:RandomExplorer")


@hookimpl
def chameleon_cost_models() -> Iterable[PluginRecord]:
    """The cost model ``none``, for explorers that need no cost model."""
    none = "No model, for explorers that learn from measurements alone"
    yield _record("none", none, "_no_model:NoCostModel", kind=CostModelRecord, predicts=False)


@hookimpl
def chameleon_presets() -> tuple[PresetRecord, ...]:
    """The presets that consist of built-in stages."""
    return (*PRESETS, *MODEL_FREE, *PUBLISHED)

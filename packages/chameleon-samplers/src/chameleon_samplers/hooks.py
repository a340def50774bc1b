"""Registers this package's plugins."""

from __future__ import annotations

from chameleon_core.plugins import NoOptions, PluginRecord, hookimpl

from chameleon_samplers.options import GreedyOptions


@hookimpl
def chameleon_samplers() -> list[PluginRecord]:
    """Samplers of this package."""
    return [
        PluginRecord(
            name="greedy",
            summary="The best-scored candidates with an epsilon of random picks (AutoTVM's)",
            factory="chameleon_samplers.greedy:GreedySampler",
            options=GreedyOptions,
        ),
        PluginRecord(
            name="random",
            summary="Random candidates, whatever their scores",
            factory="chameleon_samplers.random_pick:RandomSampler",
            options=NoOptions,
        ),
    ]


@hookimpl
def chameleon_synthesizers() -> list[PluginRecord]:
    """Synthesizers of this package."""
    return [
        PluginRecord(
            name="none",
            summary="Measures what the sampler chose",
            factory="chameleon_samplers.none:NoSynthesizer",
            options=NoOptions,
        ),
    ]

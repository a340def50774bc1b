"""Registers this package's plugins."""

from __future__ import annotations

from chameleon_core.plugins import NoOptions, PluginRecord, hookimpl

from chameleon_samplers import options


@hookimpl
def chameleon_samplers() -> list[PluginRecord]:
    """Samplers of this package."""
    return [
        PluginRecord(
            name="greedy",
            summary="The best-scored candidates with an epsilon of random picks (AutoTVM's)",
            factory="chameleon_samplers.greedy:GreedySampler",
            options=options.GreedyOptions,
        ),
        PluginRecord(
            name="kmeans-knee",
            summary="One candidate per cluster, as many as the knee says (adaptive sampling)",
            factory="chameleon_samplers.kmeans_knee:KMeansKneeSampler",
            options=options.KMeansKneeOptions,
        ),
        PluginRecord(
            name="diversity",
            summary="Good scores and knob values not in the batch yet (AutoTVM's submodular pick)",
            factory="chameleon_samplers.diversity:DiversitySampler",
            options=options.DiversityOptions,
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
            name="mode",
            summary="Unusable samples become the most frequent choices (sample synthesis)",
            factory="chameleon_samplers.mode:ModeSynthesizer",
            options=options.ModeOptions,
        ),
        PluginRecord(
            name="crossover",
            summary="Part of a batch recombines the best configurations measured",
            factory="chameleon_samplers.crossover:CrossoverSynthesizer",
            options=options.CrossoverOptions,
        ),
        PluginRecord(
            name="none",
            summary="Measures what the sampler chose",
            factory="chameleon_samplers.none:NoSynthesizer",
            options=NoOptions,
        ),
    ]

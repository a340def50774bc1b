"""Registers this package's plugins."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugin_api import PluginRecord, hookimpl, recorder

from chameleon_samplers import _options as options

_record = recorder("chameleon_samplers")


@hookimpl
def chameleon_samplers() -> Iterable[PluginRecord]:
    """Samplers of this package."""
    greedy = "The best-scored candidates with an epsilon of random picks (AutoTVM's)"
    knee = "One candidate per cluster, as many as the knee says (adaptive sampling)"
    diverse = "Good scores and knob values not in the batch yet (AutoTVM's submodular pick)"
    random = "Random candidates, whatever their scores"
    yield _record("greedy", greedy, "_picking:GreedySampler", options.GreedyOptions)
    yield _record("kmeans-knee", knee, "_kmeans_knee:KMeansKneeSampler", options.KMeansKneeOptions)
    yield _record("diversity", diverse, "_picking:DiversitySampler", options.DiversityOptions)
    yield _record("random", random, "_picking:RandomSampler")


@hookimpl
def chameleon_synthesizers() -> Iterable[PluginRecord]:
    """Synthesizers of this package."""
    mode = "Unusable samples become the most frequent choices (sample synthesis)"
    cross = "Part of a batch recombines the best configurations measured"
    none = "Measures what the sampler chose"
    yield _record("mode", mode, "_synthesizers:ModeSynthesizer", options.ModeOptions)
    yield _record(
        "crossover", cross, "_synthesizers:CrossoverSynthesizer", options.CrossoverOptions
    )
    yield _record("none", none, "_synthesizers:NoSynthesizer")

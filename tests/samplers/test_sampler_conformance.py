"""Every sampler and synthesizer of this repository keeps the contract."""

import pytest
from chameleon_core.plugins import NoOptions
from chameleon_samplers.crossover import CrossoverSynthesizer
from chameleon_samplers.diversity import DiversitySampler
from chameleon_samplers.greedy import GreedySampler
from chameleon_samplers.kmeans_knee import KMeansKneeSampler
from chameleon_samplers.mode import ModeSynthesizer
from chameleon_samplers.none import NoSynthesizer
from chameleon_samplers.options import (
    CrossoverOptions,
    DiversityOptions,
    GreedyOptions,
    KMeansKneeOptions,
    ModeOptions,
)
from chameleon_samplers.random_pick import RandomSampler
from chameleon_testing.conformance import check_sampler, check_synthesizer


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 1.0])
def test_greedy_conforms(epsilon):
    check_sampler(lambda context: GreedySampler(GreedyOptions(epsilon=epsilon), context))


def test_random_conforms():
    check_sampler(lambda context: RandomSampler(NoOptions(), context))


@pytest.mark.parametrize(
    "options",
    [
        KMeansKneeOptions(),
        KMeansKneeOptions(representative="best", smallest=1, step=1),
        KMeansKneeOptions(knobs="widest", scaled=False, threshold=1e9),
        KMeansKneeOptions(smallest=64, largest=8),
    ],
)
def test_kmeans_knee_conforms(options):
    check_sampler(lambda context: KMeansKneeSampler(options, context))


@pytest.mark.parametrize(
    "options", [DiversityOptions(), DiversityOptions.release(), DiversityOptions(alpha=0.0)]
)
def test_diversity_conforms(options):
    check_sampler(lambda context: DiversitySampler(options, context))


def test_none_conforms():
    check_synthesizer(lambda context: NoSynthesizer(NoOptions(), context))


@pytest.mark.parametrize(
    "options", [ModeOptions(), ModeOptions(share=1.0), ModeOptions(share=0.5, tries=1)]
)
def test_mode_conforms(options):
    check_synthesizer(lambda context: ModeSynthesizer(options, context))


@pytest.mark.parametrize(
    "options", [CrossoverOptions(), CrossoverOptions(share=1.0, parents=2, tries=1)]
)
def test_crossover_conforms(options):
    check_synthesizer(lambda context: CrossoverSynthesizer(options, context))

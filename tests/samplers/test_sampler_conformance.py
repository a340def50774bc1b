"""Every sampler and synthesizer of this repository keeps the contract."""

import pytest
from chameleon_core.plugins import NoOptions
from chameleon_core.testing.conformance import check_sampler, check_synthesizer
from chameleon_samplers.greedy import GreedySampler
from chameleon_samplers.none import NoSynthesizer
from chameleon_samplers.options import GreedyOptions
from chameleon_samplers.random_pick import RandomSampler


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 1.0])
def test_greedy_conforms(epsilon):
    check_sampler(lambda context: GreedySampler(GreedyOptions(epsilon=epsilon), context))


def test_random_conforms():
    check_sampler(lambda context: RandomSampler(NoOptions(), context))


def test_none_conforms():
    check_synthesizer(lambda context: NoSynthesizer(NoOptions(), context))

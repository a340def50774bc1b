"""Every sampler and synthesizer keeps its contract, and they work together on any plan."""

import numpy as np
import pytest
from chameleon_core.plugins import NoOptions
from chameleon_core.stages import Candidates, Visited
from chameleon_samplers import options
from chameleon_samplers.none import NoSynthesizer
from chameleon_samplers.random_pick import RandomSampler
from chameleon_testing.conformance import check_sampler, check_synthesizer
from chameleon_testing.conformance_cases import context_of, grid, observe
from hypothesis import given, settings
from hypothesis import strategies as st
from stages import maker

SAMPLERS = {
    "greedy": maker(options.GreedyOptions()),
    "random": lambda context: RandomSampler(NoOptions(), context),
    "diversity": maker(options.DiversityOptions()),
    "knee": maker(options.KMeansKneeOptions(smallest=2, step=2)),
    "knee-literal": maker(options.KMeansKneeOptions.literal()),
    "knee-release": maker(options.KMeansKneeOptions.release()),
}
SYNTHESIZERS = {
    "none": lambda context: NoSynthesizer(NoOptions(), context),
    "mode": maker(options.ModeOptions()),
    "mode-half": maker(options.ModeOptions(share=0.5)),
    "crossover": maker(options.CrossoverOptions(share=0.5)),
}


@pytest.mark.parametrize(
    "make",
    [
        *(maker(options.GreedyOptions(epsilon=epsilon)) for epsilon in (0.0, 0.05, 1.0)),
        SAMPLERS["random"],
        maker(options.KMeansKneeOptions()),
        maker(options.KMeansKneeOptions(representative="best", smallest=1, step=1)),
        maker(options.KMeansKneeOptions(knobs="widest", scaled=False, threshold=1e9)),
        maker(options.KMeansKneeOptions(smallest=64, largest=8)),
        maker(options.DiversityOptions()),
        maker(options.DiversityOptions.release()),
        maker(options.DiversityOptions(alpha=0.0)),
    ],
)
def test_samplers_conform(make):
    check_sampler(make)


@pytest.mark.parametrize(
    "make",
    [
        SYNTHESIZERS["none"],
        maker(options.ModeOptions()),
        maker(options.ModeOptions(share=1.0)),
        maker(options.ModeOptions(share=0.5, tries=1)),
        maker(options.CrossoverOptions()),
        maker(options.CrossoverOptions(share=1.0, parents=2, tries=1)),
    ],
)
def test_synthesizers_conform(make):
    check_synthesizer(make)


@st.composite
def situations(draw):
    """A space, the configurations of a plan with scores, and those that were measured."""
    cardinalities = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    modulus = draw(st.sampled_from([1, 2, 3]))
    space = grid(
        *cardinalities,
        holds=lambda v: sum(v[f"k{i}"] for i in range(len(cardinalities))) % modulus == 0,
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    configs = space.sample(draw(st.integers(0, 40)), rng)
    levels = draw(st.integers(1, 5))
    scores = np.sort(rng.integers(0, levels, len(configs)))[::-1].astype(float)
    measured = space.sample(draw(st.integers(0, 20)), rng)
    return space, Candidates(configs=configs, scores=scores), measured


@settings(max_examples=60, deadline=None)
@given(
    situations(),
    st.sampled_from(sorted(SAMPLERS)),
    st.sampled_from(sorted(SYNTHESIZERS)),
    st.integers(1, 12),
    st.integers(0, 3),
)
def test_a_batch_can_be_measured_whoever_made_it(situation, sampler, synthesizer, count, seed):
    space, candidates, measured = situation

    def batch():
        visited = Visited(space)
        visited.add(measured)
        selected = SAMPLERS[sampler](context_of(space, seed=seed)).select(
            candidates, visited, count
        )
        assert len(selected) <= count
        assert ((selected >= 0) & (selected < space.cardinalities)).all()
        mending = SYNTHESIZERS[synthesizer](context_of(space, seed=seed))
        mending.observe(observe(space, measured, failing=np.arange(len(measured)) % 3 == 0))
        return selected, mending.refine(selected, candidates, visited), visited

    selected, refined, visited = batch()
    assert len(refined) <= len(selected)
    assert space.legal(refined).all()
    assert visited.fresh(refined).all()
    assert len(space.distinct(refined)) == len(refined)
    # Nothing that could be measured is lost on the way.
    good = space.distinct(selected[space.legal(selected) & visited.fresh(selected)])
    assert len(refined) >= len(good)
    assert (refined == batch()[1]).all()

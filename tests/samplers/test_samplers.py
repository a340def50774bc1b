"""Which of the candidates are measured, by every sampler and with every synthesizer."""

import numpy as np
import pytest
import synthetic
from chameleon_core._loop.round.stages import SearchStages
from chameleon_core._loop.round.tuner import TaskTuner
from chameleon_core._measurement import Measurement
from chameleon_core.plugin_api import Candidates, Explorer, NoOptions, Visited
from chameleon_samplers import _options as options
from chameleon_samplers._kmeans_knee import KMeansKneeSampler
from chameleon_samplers._options import GreedyOptions, KMeansKneeOptions, ModeOptions
from chameleon_samplers._picking import GreedySampler, RandomSampler
from chameleon_samplers._synthesizers import ModeSynthesizer, NoSynthesizer
from chameleon_testing._conformance_cases import context_of, grid, observe
from chameleon_testing.conformance import check_sampler, check_synthesizer
from hypothesis import given, settings
from hypothesis import strategies as st
from stages import maker


@pytest.fixture
def space():
    return grid(*[100] * 3)


@pytest.fixture
def plan(space):
    """Sixty-four candidates, the best of which is the last."""
    configs = space.sample(64, np.random.default_rng(0))
    return Candidates(configs=configs, scores=np.linspace(0.1, 1.0, 64))


def greedy(space, epsilon, seed=0):
    return GreedySampler(GreedyOptions(epsilon=epsilon), context_of(space, seed=seed))


def planned(space, plan, chosen):
    return np.isin(space.keys(chosen), space.keys(plan.configs))


def test_greedy_takes_the_best_first(space, plan):
    assert (greedy(space, 0.0).select(plan, Visited(space), 8) == plan.configs[::-1][:8]).all()


def test_greedy_skips_what_was_visited(space, plan):
    visited = Visited(space)
    visited.add(plan.configs[-4:])
    assert (greedy(space, 0.0).select(plan, visited, 8) == plan.configs[::-1][4:12]).all()


@pytest.mark.parametrize("batch", [8, 64])
def test_an_epsilon_of_the_picks_is_random_whatever_the_batch(space, plan, batch):
    random_picks = 0
    for seed in range(100):
        chosen = greedy(space, 0.05, seed).select(plan, Visited(space), batch)
        assert len(chosen) == batch
        random_picks += (~planned(space, plan, chosen)).sum()
    # 5 % of 100 batches; the rounding of each batch is a coin of its own.
    assert 0.03 < random_picks / (100 * batch) < 0.07


@pytest.mark.parametrize("kind", ["greedy", "random"])
def test_a_short_plan_is_filled_from_the_space(space, plan, kind):
    short = Candidates(configs=plan.configs[:3], scores=plan.scores[:3])
    random = RandomSampler(NoOptions(), context_of(space))
    sampler = greedy(space, 0.0) if kind == "greedy" else random
    chosen = sampler.select(short, Visited(space), 8)
    assert len(chosen) == 8
    assert planned(space, plan, chosen).sum() == 3


def test_random_ignores_scores(space, plan):
    counts = np.zeros(64)
    for seed in range(400):
        sampler = RandomSampler(NoOptions(), context_of(space, seed=seed))
        chosen = sampler.select(plan, Visited(space), 8)
        assert planned(space, plan, chosen).all()
        counts += np.isin(space.keys(plan.configs), space.keys(chosen))
    # Each is expected 50 times; five standard deviations either way.
    assert counts.min() > 17
    assert counts.max() < 83


def test_none_keeps_a_good_batch_as_it_is(space, plan):
    batch = plan.configs[5:13]
    refined = NoSynthesizer(NoOptions(), context_of(space)).refine(batch, plan, Visited(space))
    assert (refined == batch).all()


@pytest.mark.parametrize("epsilon", [-0.1, 1.1])
def test_wrong_options_are_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        GreedyOptions(epsilon=epsilon)


# -- every sampler and synthesizer -----------------------------------------------------------------


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
    assert visited.unvisited(refined).all()
    assert len(space.distinct(refined)) == len(refined)
    # Nothing that could be measured is lost on the way.
    good = space.distinct(selected[space.legal(selected) & visited.unvisited(selected)])
    assert len(refined) >= len(good)
    assert (refined == batch()[1]).all()


# -- in the loop of a search -----------------------------------------------------------------------


SPACE = grid(*[50] * 2)
FIRST = np.array([[11, 11], [31, 31]], np.int32)
# Two groups whose centroids, rounded down, are the configurations measured first.
CANDIDATES = np.array(
    [[10, 12], [12, 10], [10, 10], [12, 12], [30, 32], [32, 30], [30, 30], [32, 32]], np.int32
)


class Fixed(Explorer):
    """Proposes the same candidates every time."""

    def explore(self, score, visited, count):
        return Candidates(configs=CANDIDATES, scores=np.zeros(len(CANDIDATES)))


def batch_after_adoption(synthesizer):
    context = context_of(SPACE)
    options = KMeansKneeOptions(smallest=2, largest=2, scaled=False, representative="floor")
    stages = SearchStages(
        explorer=Fixed(),
        cost_model=synthetic.SyntheticCostModel(NoOptions(), context),
        sampler=KMeansKneeSampler(options, context),
        synthesizer=synthesizer(context),
        space=SPACE,
        task=context.task,
    )
    tuner = TaskTuner(SPACE, stages, rng=np.random.default_rng(0), batch_size=4)
    tuner.adopt([Measurement(config=tuple(row), seconds=(1.0,)) for row in FIRST.tolist()])
    return tuner.ask().configs


def test_the_mode_replaces_centroids_that_were_measured():
    batch = batch_after_adoption(lambda context: ModeSynthesizer(ModeOptions(), context))
    assert len(batch) == 2
    # All choices of the candidates are equally frequent; the mode is made of them alone.
    assert set(batch.ravel().tolist()) <= set(CANDIDATES.ravel().tolist())


def test_without_a_synthesizer_random_ones_do():
    batch = batch_after_adoption(lambda context: NoSynthesizer(NoOptions(), context))
    assert len(batch) == 2
    assert not np.isin(SPACE.keys(batch), SPACE.keys(FIRST)).any()

"""Which of the candidates are measured."""

import numpy as np
import pytest
from chameleon_core.plugins import NoOptions
from chameleon_core.stages import Candidates, Visited
from chameleon_samplers.greedy import GreedySampler
from chameleon_samplers.none import NoSynthesizer
from chameleon_samplers.options import GreedyOptions
from chameleon_samplers.random_pick import RandomSampler
from chameleon_testing.conformance_cases import context_of, grid


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

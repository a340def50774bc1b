"""Simulated annealing: what it costs, what it finds, what it remembers."""

import numpy as np
import pytest
from chameleon_core.plugin_api import Choice, DesignSpace, Visited
from chameleon_explorers._annealing import AnnealingExplorer
from chameleon_explorers._options import AnnealingOptions
from chameleon_testing._conformance_cases import (
    context_of,
    grid,
    observe,
    quality,
    spaces,
    tiled_space,
)


class Scorer:
    """A score function that remembers what it was asked."""

    def __init__(self, space, score=None):
        self.space, self.calls, self._score = space, [], score

    def __call__(self, configs):
        self.calls.append(configs.copy())
        return self._score(configs) if self._score else quality(self.space, configs)


@pytest.fixture
def space():
    return grid(*[20] * 8)


def explore(space, options, count=16, *, seed=3, scorer=None):
    explorer = AnnealingExplorer(options, context_of(space, seed=seed))
    scorer = scorer or Scorer(space)
    return explorer, scorer, explorer.explore(scorer, Visited(space), count)


def test_every_step_scores_all_chains_at_once(space):
    options = AnnealingOptions(chains=32, steps=40, early_stop=40)
    _, scorer, candidates = explore(space, options)
    assert candidates.steps == 40
    assert [len(configs) for configs in scorer.calls] == [32] * 41


def test_it_beats_as_many_random_configurations(space):
    options = AnnealingOptions(chains=32, steps=200)
    for seed in range(5):
        _, scorer, candidates = explore(space, options, seed=seed)
        looked_at = sum(len(configs) for configs in scorer.calls)
        random = quality(space, space.sample(looked_at, np.random.default_rng(seed)))
        assert candidates.scores.mean() > np.sort(random)[-16:].mean()


def test_it_stops_early_when_the_best_set_no_longer_changes():
    space = DesignSpace([Choice(name="k", options=tuple(range(6)))])
    options = AnnealingOptions(chains=16, steps=500, early_stop=10)
    _, _, candidates = explore(space, options, count=6)
    assert 10 <= candidates.steps < 60
    assert sorted(candidates.configs[:, 0].tolist()) == [0, 1, 2, 3, 4, 5]


def test_a_cold_chain_never_gets_worse(space):
    options = AnnealingOptions(chains=8, steps=60, early_stop=60, temperature=0.0)
    explorer, scorer, _ = explore(space, options)
    explorer.explore(scorer, Visited(space), 4)
    first, second = scorer.calls[0], scorer.calls[61]
    assert (quality(space, second) >= quality(space, first)).all()
    assert (quality(space, second) > quality(space, first)).any()


def test_a_hot_chain_takes_worse_configurations_too(space):
    options = AnnealingOptions(chains=8, steps=1, temperature=1e6)
    explorer, scorer, _ = explore(space, options)
    explorer.explore(scorer, Visited(space), 4)
    proposed, chains = scorer.calls[1], scorer.calls[2]
    assert (proposed == chains).all()
    assert (quality(space, chains) < quality(space, scorer.calls[0])).any()


@pytest.mark.parametrize("persistent", [True, False])
def test_chains_persist_where_they_are_to(space, persistent):
    # A score that is always better than before: every proposal is taken.
    growing = iter(range(10**6))
    scorer = Scorer(space, lambda configs: np.full(len(configs), float(next(growing))))
    options = AnnealingOptions(chains=8, steps=5, persistent=persistent)
    explorer, _, _ = explore(space, options, scorer=scorer)
    last_of_first_round = scorer.calls[5]
    begins_at = len(scorer.calls)
    explorer.explore(scorer, Visited(space), 4)
    assert (scorer.calls[begins_at] == last_of_first_round).all() == persistent


def test_elites_restart_chains_at_the_best_measured(space):
    explorer, scorer, _ = explore(space, AnnealingOptions(chains=8, steps=1, elites=3))
    measured = space.sample(20, np.random.default_rng(5))
    failing = np.arange(20) % 2 == 0
    explorer.observe(observe(space, measured, failing=failing))
    begins_at = len(scorer.calls)
    explorer.explore(scorer, Visited(space), 4)
    working = measured[~failing]
    best = working[np.argsort(-quality(space, working), kind="stable")[:3]]
    assert (scorer.calls[begins_at][:3] == best).all()


def test_chains_begin_at_the_guesses_of_the_space():
    space = spaces()["tiled"]
    _, scorer, _ = explore(space, AnnealingOptions(chains=8, steps=1))
    assert (scorer.calls[0][: len(space.first_guesses)] == space.first_guesses).all()


def test_it_does_not_change_what_the_model_returned(space):
    pairs = []

    def remembering(configs):
        pairs.append((scores := quality(space, configs), scores.copy()))
        return scores

    explore(space, AnnealingOptions(chains=8, steps=20), scorer=remembering)
    assert all((scores == copy).all() for scores, copy in pairs)


def test_a_small_space_is_scored_as_a_whole_where_it_is_to():
    space = grid(*[10] * 3)
    _, scorer, candidates = explore(space, AnnealingOptions(chains=8, steps=5, exhaustive=True))
    assert [len(configs) for configs in scorer.calls] == [1000]
    everything = np.sort(quality(space, space.all_legal))
    assert candidates.scores.tolist() == everything[::-1][:16].tolist()


def test_a_large_space_is_walked_in_all_the_same():
    space = grid(*[33] * 3)
    assert len(space.all_legal) > 1 << 15
    _, scorer, _ = explore(space, AnnealingOptions(chains=8, steps=124, exhaustive=True))
    assert [len(configs) for configs in scorer.calls][:2] == [8, 8]


def test_without_a_model_it_proposes_at_random(space):
    explorer = AnnealingExplorer(AnnealingOptions(), context_of(space))
    candidates = explorer.explore(None, Visited(space), 16)
    assert candidates.configs.shape == (16, 8)
    assert candidates.steps == 0
    assert not candidates.scores.any()


@pytest.mark.parametrize(
    "wrong", [{"chains": 0}, {"steps": 0}, {"temperature": -1.0}, {"elites": -1}]
)
def test_wrong_options_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        AnnealingOptions(**wrong)


def test_neighbours_of_the_best_come_first_whatever_the_model_thinks_of_them():
    space = tiled_space()
    context = context_of(space)
    options = AnnealingOptions(chains=8, steps=5, exhaustive=True, neighbours=1.0)
    explorer = AnnealingExplorer(options, context)
    measured = space.sample(5, np.random.default_rng(0))
    observations = observe(space, measured)
    explorer.observe(observations)
    visited = Visited(space)
    visited.add(measured)
    leaders = measured[np.argsort(observations.costs)[:3]]
    near = np.concatenate([space.neighbours(leader) for leader in leaders])
    near_keys = set(space.keys(near).tolist())

    def score(configs):
        # The model likes everything but the neighbours.
        return np.array([0.0 if key in near_keys else 1.0 for key in space.keys(configs).tolist()])

    candidates = explorer.explore(score, visited, 64)
    first = candidates.configs[: context.batch_size]
    expected = min(context.batch_size, len(near_keys - set(space.keys(measured).tolist())))
    assert set(space.keys(first).tolist()[:expected]) <= near_keys
    assert (np.diff(candidates.scores) <= 0).all()
    assert len(space.distinct(candidates.configs)) == len(candidates.configs)
    assert visited.unvisited(candidates.configs).all()

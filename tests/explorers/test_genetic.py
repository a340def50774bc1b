"""The genetic algorithm: generations, selection, both kinds of fitness."""

import numpy as np
import pytest
from chameleon_core.plugin_api import Visited
from chameleon_explorers._genetic import GeneticExplorer
from chameleon_explorers._options import GeneticOptions
from chameleon_testing._conformance_cases import context_of, grid, observe, quality


@pytest.fixture
def space():
    return grid(*[20] * 6)


def made(space, seed=0, **options):
    return GeneticExplorer(GeneticOptions(**options), context_of(space, seed=seed))


def run(space, explorer, measurements, *, batch=8, seed=0):
    """What a search measures, shape (measurements, knobs)."""
    visited = Visited(space)
    seen = space.sample(batch, np.random.default_rng(seed))
    while len(seen) < measurements:
        visited.add(seen)
        observations = observe(space, seen)
        # The fastest are fertile by how much faster they are: in kernels, several times.
        observations.costs[:] = quality(space, seen) ** -6
        explorer.observe(observations)
        seen = np.concatenate([seen, explorer.explore(None, visited, 64).configs[:batch]])
    return seen


def test_the_defaults_are_what_was_published():
    options = GeneticOptions()
    assert (options.population, options.elites, options.mutation) == (100, 3, 0.1)


def test_without_mutation_children_have_the_knobs_of_parents_at_one_cut(space):
    explorer, visited = made(space, population=2, elites=0, mutation=0.0), Visited(space)
    parents = np.array([[1] * 6, [2] * 6], np.int32)
    visited.add(parents)
    explorer.observe(observe(space, parents))
    children = explorer.explore(None, visited, 2).configs
    assert len(children)
    for child in children.tolist():
        assert (np.diff(child) != 0).sum() == 1
        assert set(child) == {1, 2}


def test_failures_have_no_children(space):
    explorer, visited = made(space, population=4, elites=0, mutation=0.0), Visited(space)
    parents = np.array([[1] * 6, [2] * 6, [3] * 6, [4] * 6], np.int32)
    visited.add(parents)
    explorer.observe(observe(space, parents, failing=np.array([True, False, False, True])))
    assert set(explorer.explore(None, visited, 4).configs.ravel().tolist()) == {2, 3}


def test_elites_stay_parents(space):
    explorer, visited = made(space, population=2, elites=1, mutation=0.0), Visited(space)
    best, others = np.full((1, 6), 9), np.repeat([[0], [1], [2], [3]], 6, axis=1)
    measured = np.concatenate([best, others]).astype(np.int32)
    visited.add(measured)
    explorer.observe(observe(space, measured))
    children = np.concatenate([explorer.explore(None, visited, 2).configs for _ in range(3)])
    # The last generation, two configurations, and the best of all.
    assert set(children.ravel().tolist()) <= {9, 2, 3}
    assert 9 in children


def test_a_generation_is_measured_before_the_next_is_bred(space):
    explorer, visited = made(space, population=24), Visited(space)
    seen = space.sample(24, np.random.default_rng(0))
    visited.add(seen)
    explorer.observe(observe(space, seen))
    generation = explorer.explore(None, visited, 24).configs
    assert len(generation) == 24
    visited.add(generation[:8])
    explorer.observe(observe(space, np.concatenate([seen, generation[:8]])))
    assert (explorer.explore(None, visited, 16).configs == generation[8:]).all()


def test_later_generations_are_better(space):
    for seed in range(3):
        seen = run(space, made(space, seed, population=40), 400, seed=seed)
        values = quality(space, seen)
        assert values[-80:].mean() > values[:80].mean() + 0.05


def test_with_the_model_as_fitness_it_beats_as_many_random_configurations(space):
    looked_at = []

    def score(configs):
        looked_at.append(len(configs))
        return quality(space, configs) - 2.0

    for seed in range(3):
        looked_at.clear()
        explorer = made(space, seed, population=60, fitness="model", generations=15)
        candidates = explorer.explore(score, Visited(space), 16)
        assert candidates.steps == 15
        drawn = space.sample(sum(looked_at), np.random.default_rng(seed))
        assert candidates.scores.mean() > np.sort(quality(space, drawn) - 2.0)[-16:].mean()

"""Every explorer keeps its contract; those that need no model search small spaces to the end."""

import numpy as np
import pytest
from chameleon_core.plugin_api import NoOptions, Visited
from chameleon_explorers._no_model import RandomExplorer
from chameleon_explorers._options import (
    AnnealingOptions,
    DropletOptions,
    GeneticOptions,
    LocalOptions,
    PortfolioOptions,
)
from chameleon_testing._conformance_cases import context_of, grid, observe
from chameleon_testing.conformance import check_explorer
from hypothesis import given, settings
from hypothesis import strategies as st
from stages import maker

EXPLORERS = {
    "local": maker(LocalOptions()),
    "droplet": maker(DropletOptions()),
    "genetic": maker(GeneticOptions(population=6)),
    "portfolio": maker(PortfolioOptions(explorers=("local", "genetic", "random"))),
}


@pytest.mark.full
@pytest.mark.parametrize(
    "make",
    [
        lambda context: RandomExplorer(NoOptions(), context),
        maker(AnnealingOptions(chains=16, steps=30)),
        maker(AnnealingOptions(chains=1, steps=1, persistent=False)),
        maker(AnnealingOptions(chains=16, steps=30, exhaustive=True)),
        maker(AnnealingOptions(chains=16, steps=30, elites=32, early_stop=3, temperature=0.0)),
        maker(LocalOptions()),
        maker(LocalOptions(share=0.0, guided=True)),
        maker(LocalOptions(share=1.0, climbs=3, restart=0.0, kick=20)),
        maker(LocalOptions(share=1.0, climbs=30, restart=1.0)),
        maker(DropletOptions()),
        maker(DropletOptions(kick=20)),
        maker(GeneticOptions()),
        maker(GeneticOptions(population=2, elites=0, mutation=0.0)),
        maker(GeneticOptions(population=10, elites=10, mutation=1.0)),
        maker(GeneticOptions(population=20, fitness="model", generations=5)),
        maker(PortfolioOptions(explorers=("local", "genetic"))),
        maker(PortfolioOptions(explorers=("random",))),
        maker(
            PortfolioOptions(explorers=("droplet", "random", "local"), curiosity=0.0, discount=1.0)
        ),
    ],
)
def test_all_conform(make):
    check_explorer(make)


def searched(make, space, batch, seed):
    """Everything that a search of the whole space measures, in order; every third one fails."""
    explorer, visited = make(context_of(space, seed=seed)), Visited(space)
    seen = np.empty((0, len(space.knobs)), np.int32)
    while len(seen) <= space.size:
        candidates = explorer.explore(None, visited, 3 * batch)
        assert len(candidates.configs) <= 3 * batch
        assert space.legal(candidates.configs).all()
        assert visited.unvisited(candidates.configs).all()
        assert len(space.distinct(candidates.configs)) == len(candidates.configs)
        assert (np.diff(candidates.scores) <= 0).all()
        measured = candidates.configs[:batch]
        if not len(measured):
            break
        visited.add(measured)
        seen = np.concatenate([seen, measured])
        explorer.observe(observe(space, seen, failing=np.arange(len(seen)) % 3 == 1))
    return seen


@pytest.mark.parametrize("name", EXPLORERS)
@settings(max_examples=15, deadline=None)
@given(
    cardinalities=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    modulus=st.sampled_from([1, 2, 3]),
    batch=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_a_whole_space_is_searched_without_repeats(name, cardinalities, modulus, batch, seed):
    space = grid(
        *cardinalities,
        holds=lambda v: sum(v[f"k{i}"] for i in range(len(cardinalities))) % modulus == 0,
    )
    seen = searched(EXPLORERS[name], space, batch, seed)
    assert len(seen) == len(space.all_legal)
    assert (seen == searched(EXPLORERS[name], space, batch, seed)).all()


@pytest.mark.parametrize("name", EXPLORERS)
def test_a_space_of_a_quadrillion_takes_no_longer(name):
    space = grid(*[32] * 10)
    explorer, visited = EXPLORERS[name](context_of(space)), Visited(space)
    seen = space.sample(16, np.random.default_rng(0))
    for _ in range(5):
        visited.add(seen)
        explorer.observe(observe(space, seen))
        candidates = explorer.explore(None, visited, 64)
        assert len(candidates.configs) >= 6
        seen = np.concatenate([seen, candidates.configs[:16]])


@pytest.mark.parametrize("name", EXPLORERS)
def test_configurations_that_are_all_equally_fast(name):
    space = grid(*[9] * 4)
    explorer, visited = EXPLORERS[name](context_of(space)), Visited(space)
    seen = space.sample(8, np.random.default_rng(0))
    for _ in range(20):
        visited.add(seen)
        observations = observe(space, seen)
        observations.costs[:] = 1e-3
        explorer.observe(observations)
        batch = explorer.explore(None, visited, 32).configs[:8]
        assert len(batch)
        seen = np.concatenate([seen, batch])


@pytest.mark.parametrize("name", EXPLORERS)
def test_where_everything_fails_it_draws_at_random(name):
    space = grid(9, 9)
    explorer, visited = EXPLORERS[name](context_of(space)), Visited(space)
    seen = space.sample(8, np.random.default_rng(0))
    visited.add(seen)
    explorer.observe(observe(space, seen, failing=np.ones(8, np.bool_)))
    assert len(explorer.explore(None, visited, 6).configs) == 6

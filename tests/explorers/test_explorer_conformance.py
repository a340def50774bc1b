"""Every explorer of this repository keeps the contract."""

import pytest
from chameleon_core.plugins import NoOptions
from chameleon_explorers.annealing import AnnealingExplorer
from chameleon_explorers.droplet import DropletExplorer
from chameleon_explorers.genetic import GeneticExplorer
from chameleon_explorers.local import LocalExplorer
from chameleon_explorers.options import (
    AnnealingOptions,
    DropletOptions,
    GeneticOptions,
    LocalOptions,
)
from chameleon_explorers.random_search import RandomExplorer
from chameleon_testing.conformance import check_explorer


@pytest.mark.parametrize(
    "options",
    [
        AnnealingOptions(chains=16, steps=30),
        AnnealingOptions(chains=1, steps=1, persistent=False),
        AnnealingOptions(chains=16, steps=30, exhaustive=True),
        AnnealingOptions(chains=16, steps=30, elites=32, early_stop=3, temperature=0.0),
    ],
)
def test_annealing_conforms(options):
    check_explorer(lambda context: AnnealingExplorer(options, context))


def test_random_conforms():
    check_explorer(lambda context: RandomExplorer(NoOptions(), context))


@pytest.mark.parametrize(
    "options",
    [
        LocalOptions(),
        LocalOptions(share=0.0, guided=True),
        LocalOptions(share=1.0, climbs=3, restart=0.0, kick=20),
        LocalOptions(share=1.0, climbs=30, restart=1.0),
    ],
)
def test_local_conforms(options):
    check_explorer(lambda context: LocalExplorer(options, context))


@pytest.mark.parametrize("options", [DropletOptions(), DropletOptions(kick=20)])
def test_droplet_conforms(options):
    check_explorer(lambda context: DropletExplorer(options, context))


@pytest.mark.parametrize(
    "options",
    [
        GeneticOptions(),
        GeneticOptions(population=2, elites=0, mutation=0.0),
        GeneticOptions(population=10, elites=10, mutation=1.0),
        GeneticOptions(population=20, fitness="model", generations=5),
    ],
)
def test_genetic_conforms(options):
    check_explorer(lambda context: GeneticExplorer(options, context))

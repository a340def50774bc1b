"""Every explorer of this repository keeps the contract."""

import pytest
from chameleon_core.plugins import NoOptions
from chameleon_core.testing.conformance import check_explorer
from chameleon_explorers.annealing import AnnealingExplorer
from chameleon_explorers.options import AnnealingOptions
from chameleon_explorers.random_search import RandomExplorer


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

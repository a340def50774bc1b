"""Small spaces, and tuners of synthetic stages: no learning library, milliseconds."""

import chameleon_core as cc
import pytest
from synthetic import synthetic_registry

from .cases import STAGES


@pytest.fixture(scope="session")
def stages():
    """Arguments of a tuner of synthetic stages."""
    return {**STAGES, "registry": synthetic_registry()}


@pytest.fixture
def tuner(stages):
    """Makes tuners of synthetic stages."""

    def make(space, **more):
        return cc.Tuner(space, **{**stages, **more})

    return make


@pytest.fixture
def tiles():
    """24 configurations, 18 of them legal."""
    return cc.design_space(
        tile=[1, 2, 4, 8],
        unroll=[0, 16, 64],
        vectorise=[False, True],
        where=[lambda tile, unroll: tile * unroll <= 128],
    )

"""Search stages over synthetic spaces."""

import numpy as np
import pytest
import synthetic
from chameleon_core._loop.plugin_contract import PluginContract
from chameleon_core._loop.round.stages import SearchStages
from chameleon_core._loop.round.tuner import TaskTuner
from chameleon_core._measurement import Measurement
from chameleon_core.plugin_api import NoOptions, StageContext
from chameleon_testing import _conformance_cases as conformance_cases


def _task(space):
    return synthetic.synthetic_task(space.cardinalities.tolist())


def _tuner(space, *, batch_size=4, seed=0, **replaced):
    context = StageContext(
        space=space,
        task=_task(space),
        rng=np.random.default_rng(seed),
        batch_size=batch_size,
        threads=1,
    )
    stages = {
        "explorer": synthetic.SyntheticExplorer(NoOptions(), context),
        "cost_model": synthetic.SyntheticCostModel(NoOptions(), context),
        "sampler": synthetic.SyntheticSampler(NoOptions(), context),
        "synthesizer": synthetic.SyntheticSynthesizer(NoOptions(), context),
        **replaced,
    }
    kinds = {"explorers": "explorer", "cost_models": "cost model", "samplers": "sampler"}
    kinds["synthesizers"] = "synthesizer"
    contracts = {
        kind: PluginContract(noun=noun, name=f"odd-{kind}") for kind, noun in kinds.items()
    }
    return TaskTuner(
        space,
        SearchStages(**stages, space=space, task=_task(space), contracts=contracts),
        rng=np.random.default_rng(seed + 1),
        batch_size=batch_size,
    )


def _measure(space, configs):
    task = _task(space)
    return [
        Measurement(config=tuple(c), seconds=(synthetic.synthetic_cost(task, c),))
        for c in configs.tolist()
    ]


@pytest.fixture
def grid():
    """Makes a grid of given cardinalities."""
    return conformance_cases.grid


@pytest.fixture
def make_tuner():
    """Makes a tuner with synthetic stages, or others in their place."""
    return _tuner


@pytest.fixture
def measure():
    """Measures configurations of a grid."""
    return _measure

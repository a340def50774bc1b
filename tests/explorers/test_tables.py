"""Searches without a model on real measurements, against figures published with these tables."""

from pathlib import Path

import numpy as np
import pytest
from chameleon_core._loop.round.stages import SearchStages
from chameleon_core._loop.round.tuner import TaskTuner
from chameleon_core._task import Task
from chameleon_core.plugin_api import NoOptions, StageContext
from chameleon_explorers._genetic import GeneticExplorer
from chameleon_explorers._local import LocalExplorer
from chameleon_explorers._no_model import NoCostModel
from chameleon_explorers._options import GeneticOptions, LocalOptions
from chameleon_runners._replay.readers import tables_at
from chameleon_samplers._options import GreedyOptions
from chameleon_samplers._picking import GreedySampler
from chameleon_samplers._synthesizers import NoSynthesizer

TABLES = Path(__file__).parents[1] / "data"
SEEDS = 30
TASK = Task(name="table", operator="table", arguments={}, target="recorded", flop=1.0)


def mean_quality(make, table, after, *, batch):
    """Best time over found time after so many measurements, mean over the seeds."""
    space = table.space()
    curves = []
    for seed in range(SEEDS):
        contexts = [
            StageContext(space=space, task=TASK, rng=rng, batch_size=batch, threads=1)
            for rng in np.random.default_rng(seed).spawn(3)
        ]
        stages = SearchStages(
            explorer=make(contexts[0]),
            cost_model=NoCostModel(NoOptions(), contexts[0]),
            sampler=GreedySampler(GreedyOptions(epsilon=0.0), contexts[1]),
            synthesizer=NoSynthesizer(NoOptions(), contexts[1]),
            space=space,
            task=TASK,
        )
        tuner = TaskTuner(space, stages, rng=contexts[2].rng, batch_size=batch)
        while len(tuner.measurements) < max(after):
            asked = tuner.ask(max(after) - len(tuner.measurements)).configs
            tuner.tell([table.measurement(config) for config in map(tuple, asked.tolist())])
        costs = np.minimum.accumulate([measurement.cost for measurement in tuner.measurements])
        curves.append(table.recorded.min() / costs[np.array(after) - 1])
    return np.mean(curves, axis=0)


@pytest.fixture(scope="module")
def a100():
    (table,) = tables_at(str(TABLES / "convolution_A100.json.gz"))
    return table


@pytest.mark.long
def test_local_search_is_as_good_as_a_sequential_one(a100):
    # A plain sequential +-1-knob iterated local search: .897 and .951 after 256 and 512. The
    # margin is two standard errors of a mean over 30 seeds.
    quality = mean_quality(
        lambda context: LocalExplorer(LocalOptions(), context), a100, (256, 512), batch=16
    )
    assert quality[0] > 0.897 - 0.03
    assert quality[1] > 0.951 - 0.02


@pytest.mark.long
def test_the_genetic_algorithm_is_as_good_as_autotvm_s(a100):
    # AutoTVM's GA on this table: .692, .830, .904.
    quality = mean_quality(
        lambda context: GeneticExplorer(GeneticOptions(), context), a100, (64, 256, 512), batch=16
    )
    assert np.abs(quality - [0.692, 0.830, 0.904]).max() < 0.05

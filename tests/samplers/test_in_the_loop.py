"""Sampler and synthesizer together in a tuner: a free slot is filled by the one who should."""

import numpy as np
import synthetic
from chameleon_core.loop.round.stages import SearchStages
from chameleon_core.loop.round.tuner import TaskTuner
from chameleon_core.measurement import Measurement
from chameleon_core.plugins import NoOptions
from chameleon_core.stages import Candidates, Explorer
from chameleon_samplers.kmeans_knee import KMeansKneeSampler
from chameleon_samplers.mode import ModeSynthesizer
from chameleon_samplers.none import NoSynthesizer
from chameleon_samplers.options import KMeansKneeOptions, ModeOptions
from chameleon_testing.conformance_cases import context_of, grid

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
    return tuner.ask()


def test_the_mode_replaces_centroids_that_were_measured():
    batch = batch_after_adoption(lambda context: ModeSynthesizer(ModeOptions(), context))
    assert len(batch) == 2
    # All choices of the candidates are equally frequent; the mode is made of them alone.
    assert set(batch.ravel().tolist()) <= set(CANDIDATES.ravel().tolist())


def test_without_a_synthesizer_random_ones_do():
    batch = batch_after_adoption(lambda context: NoSynthesizer(NoOptions(), context))
    assert len(batch) == 2
    assert not np.isin(SPACE.keys(batch), SPACE.keys(FIRST)).any()

"""Stages that break their contract: rows are dropped, the rest is an error with a name."""

import attrs
import numpy as np
import pytest
from chameleon_core._errors import PluginError
from chameleon_core.plugin_api import Candidates, CostModel, Explorer, Sampler, Synthesizer


class Scripted(Explorer):
    """Returns what it is told to, as Candidates with zero scores."""

    def __init__(self, configs, scores=None):
        self._configs = configs
        self._scores = np.zeros(len(configs)) if scores is None else scores

    def explore(self, score, visited, count):
        return Candidates(configs=self._configs, scores=self._scores)


@pytest.fixture
def space(grid):
    return grid(9, 9)


@pytest.fixture
def second_batch(space, make_tuner, measure):
    """What a tuner with other stages asks for in its second round."""

    def ask(space=space, **stages):
        tuner = make_tuner(space, **stages)
        tuner.tell(measure(space, tuner.ask().configs))
        return tuner.ask().configs

    return ask


def test_unusable_rows_are_replaced(grid, make_tuner, second_batch):
    space = grid(9, 9, holds=lambda v: v["k0"] != 8)
    visited = make_tuner(space).ask().configs
    rows = np.array([[8, 0], [7, 99], [-1, 0], *visited.tolist(), [6, 8], [6, 8], [6, 7]])
    batch = second_batch(space, explorer=Scripted(rows))
    assert len(batch) == 4
    assert space.legal(batch).all()
    assert len(space.distinct(np.concatenate([visited, batch]))) == 8


def test_an_explorer_that_finds_nothing_is_replaced_by_chance(second_batch):
    nothing = Scripted(np.empty((0, 2), np.int32))
    assert len(second_batch(explorer=nothing)) == 4


@pytest.mark.parametrize(
    "configs",
    [
        np.zeros((3, 5), np.int32),
        np.zeros(3, np.int32),
        np.full((3, 2), 0.5),
        np.array([["a", "b"]]),
        [[1, 2], [3]],
    ],
    ids=["knobs", "one axis", "floats", "strings", "ragged"],
)
def test_rubbish_names_the_explorer(second_batch, configs):
    with pytest.raises(PluginError, match="explorer 'odd-explorers' returned") as caught:
        second_batch(explorer=Scripted(configs))
    assert caught.value.hint


@pytest.mark.parametrize("scores", [np.zeros(3), np.zeros((1, 1)), ["good"]])
def test_scores_of_another_shape(second_batch, scores):
    explorer = Scripted(np.array([[8, 8]]), scores)
    with pytest.raises(PluginError, match=r"odd-explorers.*scores"):
        second_batch(explorer=explorer)


def test_candidates_that_are_not_best_first(second_batch):
    explorer = Scripted(np.array([[8, 8], [8, 7], [8, 6]]), np.array([2.0, 3.0, 1.0]))
    with pytest.raises(PluginError, match=r"odd-explorers.*best first"):
        second_batch(explorer=explorer)


def test_not_even_candidates(second_batch):
    class Lazy(Explorer):
        def explore(self, score, visited, count):
            return None

    with pytest.raises(PluginError, match=r"odd-explorers.*NoneType instead of Candidates"):
        second_batch(explorer=Lazy())


class Model(CostModel):
    """Predicts what it is told to, whatever the configurations."""

    trained = True

    def __init__(self, predicted):
        self._predicted = predicted

    def fit(self, observations):
        pass

    def predict(self, configs):
        return self._predicted(configs)


class Together(Model):
    """Says which candidates to measure at the same time."""

    def __init__(self, rows):
        super().__init__(lambda configs: -np.arange(len(configs), dtype=float))
        self._rows = rows

    def select_batch(self, configs, count):
        return self._rows


CANDIDATES = np.array([[8, knob] for knob in range(9)])


def _explored(tuner):
    return tuner.stages.selected_batch_first(tuner.stages.explore(tuner.visited, 9), 4)


def test_what_the_model_would_measure_together_comes_first(space, make_tuner, measure):
    tuner = make_tuner(space, explorer=Scripted(CANDIDATES), cost_model=Together([4, 2]))
    tuner.tell(measure(space, tuner.ask().configs))
    candidates = _explored(tuner)
    fresh = [row for row in CANDIDATES.tolist() if tuner.visited.unvisited(np.array([row])).all()]
    expected = [fresh[row] for row in (4, 2, 0, 1, 3)]
    assert candidates.configs.tolist() == expected
    assert (np.diff(candidates.scores) <= 0).all()


def test_each_configuration_keeps_its_own_score(space, make_tuner):
    explorer = Scripted(CANDIDATES, -np.arange(9.0))
    tuner = make_tuner(space, explorer=explorer, cost_model=Together([4, 2]))
    proposal = tuner.ask()
    proposed = list(map(tuple, proposal.configs.tolist()))
    assert len(proposed) == 4
    assert proposal.scores == {config: -config[1] for config in proposed}


def test_rows_that_are_none_are_left_out(space, make_tuner, measure):
    tuner = make_tuner(space, explorer=Scripted(CANDIDATES), cost_model=Together([99, 3, -1, 3]))
    tuner.tell(measure(space, tuner.ask().configs))
    candidates = _explored(tuner)
    plain = Together(None)
    tuner.stages = attrs.evolve(tuner.stages, cost_model=plain)
    assert candidates.configs[0].tolist() == _explored(tuner).configs[3].tolist()


@pytest.mark.parametrize("rows", [[0.5], [[0, 1]], "first", [[0], [1, 2]]])
def test_rubbish_instead_of_rows_names_the_model(second_batch, rows):
    with pytest.raises(PluginError, match="cost model 'odd-cost_models' returned"):
        second_batch(explorer=Scripted(CANDIDATES), cost_model=Together(rows))


def test_nan_predictions_count_as_the_lowest(space, make_tuner, measure):
    def predicted(configs):
        scores = np.arange(len(configs), dtype=float)
        scores[1::2] = np.nan
        return scores

    tuner = make_tuner(space, cost_model=Model(predicted))
    tuner.tell(measure(space, tuner.ask().configs))
    assert len(tuner.ask().configs) == 4
    scores = tuner.stages.score(space.from_keys(np.arange(81)))
    assert np.isfinite(scores).all()
    assert (scores[1::2] == scores.min()).all()


def test_a_model_of_only_nan_still_leaves_a_batch(second_batch):
    model = Model(lambda configs: np.full(len(configs), np.nan))
    assert len(second_batch(cost_model=model)) == 4


@pytest.mark.parametrize(
    ("replaced", "named"),
    [
        ({"cost_model": Model(lambda configs: np.zeros(1 + len(configs)))}, "odd-cost_models"),
        ({"cost_model": Model(lambda configs: 1 / 0)}, "odd-cost_models.*ZeroDivisionError"),
    ],
)
def test_a_broken_model_is_named(second_batch, replaced, named):
    with pytest.raises(PluginError, match=named):
        second_batch(**replaced)


def test_an_exception_keeps_its_cause(second_batch):
    class Broken(Sampler):
        def select(self, candidates, visited, count):
            raise KeyError("tile_f")

    with pytest.raises(PluginError, match="sampler 'odd-samplers' failed to select") as caught:
        second_batch(sampler=Broken())
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_synthesizer_cannot_enlarge_a_batch(second_batch):
    class Greedy(Synthesizer):
        def refine(self, batch, candidates, visited):
            return candidates.configs

    assert len(second_batch(synthesizer=Greedy())) == 4

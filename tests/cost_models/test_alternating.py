"""Models that take turns: who guides which round, how it is written, who steps in."""

import numpy as np
import pytest
from chameleon_core._pipeline.load import load_pipeline
from chameleon_core._pipeline.nodes import PipelineError
from chameleon_core._pipeline.schema import StageSpec
from chameleon_core.plugin_api import CostModel, NoOptions, PluginRecord
from chameleon_cost_models._alternating import AlternatingModels
from chameleon_cost_models._options import AlternatingOptions
from chameleon_testing._conformance_cases import context_of, observe, spaces

SPACE = spaces()["tiled"]


class Scripted(CostModel):
    """Scores everything with its own number, and counts what it learns."""

    number, learns, together = 1.0, True, None

    def __init__(self, options, context):
        self.rng, self.fits = context.rng, 0

    def fit(self, observations):
        self.fits += 1

    @property
    def trained(self):
        return self.learns and self.fits > 0

    def predict(self, configs):
        return np.full(len(configs), self.number)

    def select_batch(self, configs, count):
        return self.together


class Other(Scripted):
    number, together = 2.0, np.array([1, 0])


class Slow(Scripted):
    number, learns = 3.0, False


def _spec(model):
    name = model.__name__
    record = PluginRecord(name=name, summary=name, factory=f"{__name__}:{name}", options=NoOptions)
    return StageSpec(kind="cost_models", name=name, record=record, options=NoOptions())


def _model(*models):
    options = AlternatingOptions(models=tuple(map(_spec, models)))
    return AlternatingModels(options, context_of(SPACE))  # rounds of 8


def _scores(model, counts):
    configs = SPACE.sample(64, np.random.default_rng(0))
    scores = []
    for count in counts:
        model.fit(observe(SPACE, configs[:count]))
        scores.append(model.predict(configs[:1])[0])
    return scores


def test_models_take_turns_by_what_was_measured():
    model = _model(Scripted, Other)
    assert _scores(model, (8, 16, 24, 32)) == [2.0, 1.0, 2.0, 1.0]
    assert _scores(model, (9, 16, 17)) == [1.0, 1.0, 2.0]


def test_the_one_whose_turn_it_is_chooses_the_round():
    model = _model(Scripted, Other)
    configs = SPACE.sample(16, np.random.default_rng(0))
    model.fit(observe(SPACE, configs[:8]))
    assert model.select_batch(configs, 2).tolist() == [1, 0]
    model.fit(observe(SPACE, configs))
    assert model.select_batch(configs, 2) is None


def test_one_that_learns_nothing_is_replaced():
    assert _scores(_model(Slow, Scripted), (8, 16)) == [1.0, 1.0]
    untaught = _model(Slow)
    _scores(untaught, (8,))
    assert not untaught.trained


def test_each_draws_from_a_generator_of_its_own():
    model = _model(Scripted, Scripted)
    drawn = [member.rng.random() for member in model._models]
    assert drawn[0] != drawn[1]


def test_in_a_pipeline(tmp_path):
    path = tmp_path / "pipeline.yaml"
    text = "model: {operators: [{dense: {input: [8, 8], units: 8}}]}\ntarget: llvm\ncost_model: "
    path.write_text(text + "{name: alternating, models: [{name: mixed, kappa: 1.0}, xgboost]}\n")
    models = load_pipeline(path).cost_model.options.models
    assert [spec.name for spec in models] == ["mixed", "xgboost"]
    path.write_text(text + "{name: alternating, models: [{name: mixed, cappa: 1.0}]}\n")
    with pytest.raises(PipelineError, match="cappa"):
        load_pipeline(path)

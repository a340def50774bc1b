"""Tasks that a cost model knows beforehand need few measurements, or none."""

import attrs
import numpy as np
import pytest
from chameleon_core._loop.end.delivery import winners
from chameleon_core._loop.end.result import OperatorResult
from chameleon_core._loop.run import run_pipeline
from chameleon_core._pipeline.nodes import PipelineError
from chameleon_core.plugin_api import CostModel
from synthetic import SyntheticRunner


class Beforehand(CostModel):
    """Likes large indices, and knows of tasks with two knobs alone."""

    trained = False

    def __init__(self, options, context):
        self.trained = len(context.space.knobs) == 2

    def fit(self, observations):
        self.trained = True

    def predict(self, configs):
        return np.asarray(configs, np.float64).sum(axis=1)


@pytest.fixture
def run(pipeline, plugin):
    def go(model="odd", **budget):
        return run_pipeline(
            pipeline(
                plugins=[plugin("cost_models", Beforehand)],
                cost_model=model,
                budget={"batch_size": 4, **budget},
            )
        )

    return go


def test_without_measurements_a_task_gets_what_its_model_predicts_best(run):
    known, unknown = run(measurements=0).operators
    assert known.measurements == unknown.measurements == 0
    assert known.ended == "the measurement budget is spent"
    # The synthetic explorer walks a part of the space. The three best candidates are compared.
    recommended = [known.config, *known.guesses]
    sums = [sum(config) for config in recommended]
    assert sums[0] in sorted(sums)[-3:]
    assert len(set(recommended)) == len(recommended)
    assert known.tuned_seconds > 0
    assert known.search_seconds is None
    known, unknown = (attrs.evolve(operator, config=None) for operator in (known, unknown))
    assert (known.predicted, unknown.predicted) == (True, False)
    assert OperatorResult.from_json(known.to_json()) == known
    (ours,) = winners([known])
    assert (ours.predicted, ours.config, ours.guesses) == (
        True,
        known.guesses[0],
        known.guesses[1:],
    )


def test_tasks_that_nothing_is_known_of_have_a_budget_of_their_own(run):
    known, unknown = run(measurements=3, unpredicted=9).operators
    assert (known.measurements, unknown.measurements) == (3, 9)
    assert not known.predicted


def test_a_model_that_knows_nothing_beforehand_changes_nothing(run):
    result = run(model="synthetic", measurements=5)
    assert [operator.measurements for operator in result.operators] == [5, 5]


def test_a_budget_of_each_task_is_none_of_the_network(run):
    with pytest.raises(PipelineError, match="'unpredicted' holds for each task"):
        run(measurements=8, unpredicted=9, scope="network")


@pytest.mark.parametrize(("measurements", "prepared"), [(0, 0), (4, 1)])
def test_a_runner_prepares_only_if_something_is_to_be_measured(
    pipeline, monkeypatch, measurements, prepared
):
    spaces = []
    monkeypatch.setattr(SyntheticRunner, "prepare", lambda _, space: spaces.append(space))
    run_pipeline(pipeline(budget={"batch_size": 4, "measurements": measurements}))
    assert len(spaces) == prepared

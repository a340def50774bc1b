"""``preset: one-shot`` is the default search but for its model and its budget."""

import pytest
from chameleon_core._pipeline.load import from_dict
from chameleon_core.api import Registry
from chameleon_one_shot import hooks


@pytest.fixture(scope="module")
def resolved():
    registry = Registry.from_plugins([("chameleon-tuner-one-shot", hooks)], with_installed=True)

    def resolve(**document):
        model = {"operators": [{"dense": {"input": [1, 8], "units": 8}}]}
        return from_dict({"model": model, "output": "nowhere", **document}, registry=registry)

    return resolve


def test_eight_are_measured_in_one_batch(resolved):
    pipeline, default = resolved(preset="one-shot"), resolved()
    budget = pipeline.budget
    assert (budget.measurements, budget.batch_size, budget.unpredicted) == (8, 8, 64)
    assert budget.unpredicted == default.budget.measurements
    assert budget.patience == 24
    assert pipeline.cost_model.name == "one-shot"
    assert pipeline.explorer == default.explorer
    # What tunes tasks that the predictor does not know is the default's model.
    (fallback,) = pipeline.cost_model.options.fallback
    assert fallback.name == default.cost_model.name


@pytest.mark.parametrize("limit", [{"measurements": 0}, {"measurements": 16}, {"wall_time": "5m"}])
def test_a_limit_that_is_set_holds_for_all_tasks(resolved, limit):
    budget = resolved(preset="one-shot", budget=limit).budget
    assert budget.measurements == limit.get("measurements")
    assert budget.unpredicted is None
    assert budget.batch_size == 8


def test_who_names_a_limit_of_unknown_tasks_gets_it(resolved):
    named = {"measurements": 0, "unpredicted": 4}
    assert resolved(preset="one-shot", budget=named).budget.unpredicted == 4


def test_a_budget_of_the_network_has_no_limit_for_each_task(resolved):
    budget = resolved(preset="one-shot", budget={"scope": "network"}).budget
    assert (budget.measurements, budget.unpredicted, budget.scope) == (8, None, "network")


def test_it_is_a_prior_of_other_models(resolved):
    model = resolved(cost_model={"name": "gaussian-process", "prior": ["one-shot"]}).cost_model
    assert model.options.prior[0].name == "one-shot"

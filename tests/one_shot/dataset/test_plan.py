"""Plans: what they leave open, and everything that is wrong with one."""

import pytest
from chameleon_core._errors import ConfigError
from chameleon_core._pipeline.nodes import PipelineError
from chameleon_one_shot._dataset.plan import differences, read_plan


def test_a_plan_is_read(plan_file, registry, tmp_path):
    plan = read_plan(plan_file(), registry=registry)
    assert (plan.amounts.tasks, plan.amounts.measurements, plan.amounts.seed) == (6, 10, 0)
    assert plan.output == tmp_path / "data"
    [search] = plan.searches
    assert (search.budget.measurements, search.budget.batch_size) == (10, 5)
    assert search.runner.name == "synthetic"
    assert [network.model.to_json() for network in plan.networks] == plan.document["networks"]


def test_the_file_is_overruled(plan_file, registry):
    plan = read_plan(plan_file(), ["tasks=3", "seed=4"], registry=registry)
    assert plan.amounts.tasks == 3
    assert plan.searches[0].seed == 4


def test_all_that_is_wrong_is_said_at_once(plan_file, registry):
    file = plan_file(
        tasks=0,
        netwroks=[],
        networks=[{"synthetc": {}}],
        searches=[{"explorer": "synthetic", "explorers": "synthetic"}],
    )
    with pytest.raises(PipelineError) as caught:
        read_plan(file, registry=registry)
    message = str(caught.value)
    assert "unknown key 'netwroks'; did you mean 'networks'?" in message
    assert "unknown frontend 'synthetc'; did you mean 'synthetic'?" in message
    assert "a search has no key 'explorers'; did you mean 'explorer'?" in message
    assert "'tasks'" in message
    assert all(str(file) in line for line in message.splitlines())


@pytest.mark.parametrize("key", ["networks", "output"])
def test_what_is_needed_is_named(plan_file, registry, key):
    with pytest.raises(PipelineError, match=f"a plan needs '{key}'"):
        read_plan(plan_file(**{key: None}), registry=registry)


def test_no_plan_is_an_error(tmp_path, registry):
    (tmp_path / "plan.yaml").write_text("- tasks")
    with pytest.raises(PipelineError, match="must be a mapping"):
        read_plan(tmp_path / "plan.yaml", registry=registry)
    with pytest.raises(ConfigError):
        read_plan(tmp_path / "none.yaml", registry=registry)


def test_plans_differ_in_what_decides_the_tasks(plan_file, registry):
    plan = read_plan(plan_file(), registry=registry).document
    more = read_plan(plan_file(), ["tasks=9", "measurements=20"], registry=registry).document
    assert differences(plan, more) == []
    other = read_plan(plan_file(), ["seed=1", "most_gflop=3"], registry=registry).document
    assert differences(plan, other) == ["most_gflop", "seed"]

"""Plans with a precision: networks are read in its dtypes, too."""

import pytest
from chameleon_core._loop.interruption import Interruption
from chameleon_core._loop.start.tasks import TaskSource
from chameleon_one_shot._dataset.collector import NetworkTasks
from chameleon_one_shot._dataset.plan import differences, read_plan

PLAN = """
output: data
target: llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -num-cores=2
networks: [{builtin: mobilenet_v2}]
hold_out: [{builtin: mobilenet_v2}]
"""


@pytest.mark.full
def test_networks_are_read_in_the_dtypes_of_a_plan(tmp_path):
    tasks = {}
    for precision in ("", "precision: int8\n"):
        file = tmp_path / "plan.yaml"
        file.write_text(PLAN + precision)
        plan = read_plan(file)
        reader = NetworkTasks(
            folder=tmp_path / "networks",
            target=TaskSource(plan.searches[0]).target(),
            interruption=Interruption(),
            say=str,
        )
        for _ in range(2):  # the second time from a file
            [read], [held] = reader.of(plan.networks), reader.of(plan.hold_out)
            tasks.setdefault(precision, []).append({task.arguments["dtype"] for task in read})
            assert {task.arguments["dtype"] for task in held} == {"float32"}
            assert {task.alternative_of for task in read} == {""}
    assert tasks == {"": [{"float32"}] * 2, "precision: int8\n": [{"float32", "int8"}] * 2}


def test_plans_of_other_precisions_differ(tmp_path):
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    plain = read_plan(file).document
    assert differences(plain, read_plan(file, ["precision=int8"]).document) == ["precision"]
    assert "precision" not in plain

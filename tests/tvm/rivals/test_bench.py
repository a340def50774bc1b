"""MetaSchedule's answer as a trajectory; the tuner itself is not run."""

import math

import pytest
from chameleon_core._errors import ConfigError
from chameleon_core._task import Task
from chameleon_tvm._rivals import bench
from chameleon_tvm._rivals.options import MetaScheduleOptions

TASK = Task(name="c", operator="conv2d", arguments={}, target="llvm", flop=1e9)
ANSWER = {
    "seconds": 9.0,
    "failed": 3,
    "best_seconds": 2e-3,
    "kernel_seconds": 3e-3,
    "trace": [["its", "schedule"]],
    "history": [
        {"seconds": 4.0, "trials": 64, "best_seconds": None},
        {"seconds": 9.0, "trials": 128, "best_seconds": 2e-3},
    ],
}


def test_its_times_are_put_on_our_clock(monkeypatch):
    asked = {}

    def tune(task, **more):
        asked.update(more)
        return ANSWER

    monkeypatch.setattr(bench, "tune_with_metaschedule", tune)
    rival = bench.MetaSchedule(MetaScheduleOptions(threads=2))
    trace = rival.tune(TASK, measurements=128, wall_seconds=None, seed=5)
    assert asked == {
        "threads": 2,
        "wall_seconds": 0.0,
        "trials": 128,
        "as_shipped": False,
        "seed": 5,
    }
    assert trace.at_seconds == (4.0, 9.0)
    assert trace.measurements == (64, 128)
    assert trace.best_seconds[0] == math.inf
    assert trace.best_seconds[1] == trace.final_seconds == pytest.approx(3e-3)
    assert trace.failed == 3
    assert trace.details["trace"] == ANSWER["trace"], "its winner can be built again"


def test_a_recorded_table_is_no_task_for_it():
    task = Task(
        name="t", operator="table", arguments={}, target="recorded", flop=0, location="t.json"
    )
    with pytest.raises(ConfigError, match="recorded table"):
        bench.MetaSchedule(MetaScheduleOptions()).tune(
            task, measurements=1, wall_seconds=None, seed=0
        )

"""A budget's wall-clock time also ends the comparisons, and the result says what was left out."""

import json
import math

import pytest
from chameleon_core._loop.end.result import RunResult
from chameleon_core._loop.run import run_pipeline
from chameleon_core._network_result import NetworkResult
from chameleon_core._run_files import RunFile
from synthetic import RunnerOptions, SyntheticFrontend, SyntheticRunner

LEFT_OUT = {"openvino": NetworkResult.TIME_IS_OVER, "tvm": "it is not installed"}


class Slow(SyntheticRunner):
    """Needs a second for a measurement, and twenty for a comparison, on its own clock."""

    seconds = 0.0

    def now(self):
        return self.seconds

    def measure(self, job):
        for measurement in super().measure(job):
            self.seconds += 1.0
            yield measurement

    def compare(self, task, contenders):
        self.seconds += 20.0
        return super().compare(task, contenders)


class Delivering(SyntheticFrontend):
    """Keeps the plan of the network's comparison."""

    plans = []

    def deliver(self, delivery):
        self.plans.append(delivery.plan)
        folder = str(delivery.folder)
        seconds = {"latency_seconds": 1.0, "rivals": {"torch": 2.0}}
        return {**seconds, "folder": folder, "delivered_seconds": 0.0, "left_out": LEFT_OUT}


@pytest.fixture
def slow(modelled, plugin):
    """Runs three tasks, and returns the result and the plan of the network's comparison."""

    def run(**more):
        Delivering.plans.clear()
        runners = [plugin("runners", Slow, RunnerOptions)]
        pipeline = modelled(
            Delivering, [[9, 9], [7, 7], [5, 5]], plugins=runners, runner={"name": "odd"}, **more
        )
        result = run_pipeline(pipeline)
        [plan] = Delivering.plans
        return result, plan

    return run


LIMIT = {"wall_time": 10.0, "batch_size": 4, "scope": "network"}


def test_comparisons_that_do_not_fit_are_left_out_and_named(slow):
    result, plan = slow(budget=LIMIT)
    # Together, the comparisons may take 30 s, a quarter of it for operators.
    assert [bool(row.vendor_seconds) for row in result.operators] == [True, False, False]
    assert all(row.config is not None for row in result.operators)
    assert plan.most_seconds == 10.0
    *_, took, left_out, _ = result.summary_lines
    assert took == (
        "The run took 30 s, and the budget's wall_time is 10 s: tuning 10 s, comparing 20 s."
    )
    assert left_out == (
        "Left out, since the time was over: the comparison of 2 of 3 operators, openvino."
    )
    assert "torch (2.00 s), the fastest other that there was time for." in result.summary_lines[1]
    written = json.loads((result.folder / RunFile.BEST).read_text())
    assert written["time_use"]["left_out"] == ["the comparison of 2 of 3 operators", "openvino"]
    assert RunResult.from_json(written, folder=result.folder).time_use == result.time_use


def test_turns_end_with_the_time_for_comparisons(slow):
    _, plan = slow(budget={**LIMIT, "wall_time": 40.0})
    assert plan.seconds == plan.most_seconds == 10.0, "a third of the time so far is 20 s"


def test_operators_that_were_not_reached_are_counted(slow):
    result, _ = slow(budget={**LIMIT, "wall_time": 2.0, "batch_size": 1})
    assert result.time_use.left_out[0] == "measurements of 1 of 3 operators"


@pytest.mark.parametrize(
    "more",
    [{"budget": {"measurements": 9}}, {"budget": LIMIT, "require": {"network_ratio": 0.1}}],
)
def test_what_is_required_or_has_no_limit_is_compared(slow, more):
    result, plan = slow(**more)
    assert all(row.vendor_seconds for row in result.operators)
    assert plan.most_seconds == math.inf


def test_a_batch_that_would_take_too_long_is_shortened(slow):
    result, _ = slow(budget={**LIMIT, "wall_time": 9.0})
    assert sum(row.measurements for row in result.operators) == 9, "and not 3 + 4 + 4"

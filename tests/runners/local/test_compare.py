"""Contenders are compared in processes of their own; a failing one is a measurement."""

import contextlib
import math
import os
import signal
import threading

import attrs
import pytest
from chameleon_core._errors import PluginError
from chameleon_core._measurement import FailureKind
from chameleon_core.plugin_api import ComparisonPlan, Contender, StageRef
from chameleon_runners._engine.comparison import LEAST_ROUNDS
from chameleon_runners._local.options import LocalOptions
from chameleon_runners._local.runner import LocalRunner
from faults import Fault, config
from marks import full

from ..conftest import QUICK, TASK, carriers, fault_space  # noqa: TID252 - tests are no package


def _contender(fault, **options):
    return Contender(name=fault.value, stage=fault_space(**options), config=config(fault))


def test_each_contender_gets_a_measurement_in_order(runner):
    faults = [
        Fault.SLOW,
        Fault.NONE,
        Fault.SEGFAULTS,
        Fault.WRONG,
        Fault.BUILD_RAISES,
        Fault.PRINTS,
    ]
    measurements = runner.compare(TASK, [_contender(fault) for fault in faults])
    assert [m.config for m in measurements] == [config(fault) for fault in faults]
    assert [m.failure for m in measurements] == [
        None,
        None,
        FailureKind.CRASH,
        FailureKind.WRONG_OUTPUT,
        FailureKind.BUILD_ERROR,
        None,
    ]
    assert measurements[0].cost > measurements[1].cost
    turn = runner.describe()["timing"]["turn_seconds"] / QUICK["repeat_seconds"]
    assert all(len(m.seconds) <= turn * QUICK["compare_rounds"] for m in measurements)
    assert measurements[1].max_relative_error == 0.0


def test_a_contender_that_cannot_be_imported_is_a_measurement(runner):
    missing = Contender(name="missing", stage=StageRef(factory="no_such_module:Baseline"))
    measurements = runner.compare(TASK, [missing, _contender(Fault.NONE)])
    assert [m.failure for m in measurements] == [FailureKind.BUILD_ERROR, None]
    assert "no_such_module" in measurements[0].message


@pytest.mark.full
def test_the_reference_comes_from_whoever_has_one(runner):
    measurements = runner.compare(
        TASK, [_contender(Fault.WRONG, reference="missing"), _contender(Fault.NONE)]
    )
    assert [m.failure for m in measurements] == [FailureKind.WRONG_OUTPUT, None]


def test_nobody_has_a_reference(runner):
    with pytest.raises(PluginError, match="expected outputs"):
        runner.compare(TASK, [_contender(Fault.NONE, reference="missing")])


@pytest.mark.parametrize(("seconds", "rounds"), [(0.0, LEAST_ROUNDS), full(math.inf, 8)])
def test_it_tells_how_far_it_is_and_ends_early_where_time_is_short(
    runner_options: LocalOptions, seconds: float, rounds: int
):
    messages = []
    plan = ComparisonPlan(seconds=seconds, tell=lambda *step: messages.append(step))
    contenders = [_contender(Fault.NONE), _contender(Fault.PRINTS)]
    with LocalRunner(attrs.evolve(runner_options, compare_rounds=8)) as runner:
        runner.plan_comparison(plan)
        assert all(row.ok for row in runner.compare(TASK, contenders))
        steps = list(messages)
        runner.compare(TASK, contenders)
    assert messages == steps, "a plan is for one comparison"
    assert [step for step in steps if step[0] == "built"][-1] == ("built", 2, 2)
    assert [step for step in steps if step[0] == "checked"] == [("checked", n, 2) for n in (1, 2)]
    assert steps[-1] == ("timed", rounds, rounds)
    assert [done for step, done, _ in steps if step == "timed"][:rounds] == list(range(rounds))


@pytest.mark.full
def test_only_the_runners_own_workers_remain(runner):
    contenders = [_contender(Fault.NONE), _contender(Fault.SLOW)]
    # Its workers may still be starting before the first comparison.
    runner.compare(TASK, contenders)
    before = set(carriers())
    runner.compare(TASK, contenders)
    assert set(carriers()) == before


@pytest.mark.full
def test_a_contender_killed_from_outside_starts_over(runner):
    before = set(carriers())
    killed = []

    def kill_one():
        for pid in set(carriers()) - before:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                return

    timers = [threading.Timer(delay, kill_one) for delay in (0.15, 0.5)]
    for timer in timers:
        timer.start()
    measurements = runner.compare(TASK, [_contender(Fault.NONE), _contender(Fault.SLOW)])
    for timer in timers:
        timer.join()
    assert [m.ok for m in measurements] == [True, True]

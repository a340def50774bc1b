"""Every fault of a candidate is one measurement of the right kind, and the run goes on."""

import pytest
from chameleon_runners.testing.faults import Fault, config

from ..conftest import by_config, job  # noqa: TID252 - tests are no package
from ..faults.conftest import HARNESSES  # noqa: TID252


@pytest.mark.parametrize("fault", [f for f in Fault if f is not Fault.NONE])
def test_one_fault_among_good_ones(runner, fault):
    configs = [config(Fault.NONE, 0), config(fault), config(Fault.NONE, 1), config(Fault.NONE, 2)]
    measurements = by_config(list(runner.measure(job(configs))))
    assert set(measurements) == set(configs)
    assert measurements[config(fault)].failure == HARNESSES["local"].expected(fault)
    assert all(measurements[config(Fault.NONE, number)].ok for number in range(3))
    again = list(runner.measure(job([config(Fault.NONE, 3)])))
    assert [m.ok for m in again] == [True]


def test_a_slow_candidate_gets_one_repeat(runner):
    configs = [config(Fault.SLOW, 0)]
    best = next(iter(runner.measure(job([config(Fault.NONE)])))).cost
    slow = job(configs)
    slow = type(slow)(task=slow.task, space=slow.space, configs=configs, best_seconds=best)
    [measurement] = runner.measure(slow)
    assert measurement.ok
    assert len(measurement.seconds) == 1


def test_an_empty_job(runner):
    assert list(runner.measure(job([]))) == []

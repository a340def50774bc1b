"""Every fault of a candidate is one measurement of the right kind, and the run goes on."""

from __future__ import annotations

import pytest
from chameleon_core.measurement import FailureKind
from chameleon_runners.local import LocalRunner
from chameleon_runners.testing.faults import Fault, config

from .conftest import by_config, job

EXPECTED = {
    Fault.NONE: None,
    Fault.INVALID: FailureKind.INVALID,
    Fault.BUILD_RAISES: FailureKind.BUILD_ERROR,
    Fault.BUILD_HANGS: FailureKind.BUILD_TIMEOUT,
    Fault.BUILD_SEGFAULTS: FailureKind.CRASH,
    Fault.SEGFAULTS: FailureKind.CRASH,
    Fault.ABORTS: FailureKind.CRASH,
    Fault.HANGS: FailureKind.RUN_TIMEOUT,
    Fault.HANGS_BLOCKING_SIGNALS: FailureKind.RUN_TIMEOUT,
    Fault.EATS_MEMORY: FailureKind.OUT_OF_MEMORY,
    Fault.PRINTS: None,
    Fault.PRINTS_WITHOUT_END: FailureKind.RUN_TIMEOUT,
    Fault.SCRIBBLES: FailureKind.CRASH,
    Fault.FORKS: None,
    Fault.FORKS_AND_HANGS: FailureKind.RUN_TIMEOUT,
    Fault.RETURNS_TWICE: None,
    Fault.EXITS: FailureKind.RUN_ERROR,
    Fault.EXITS_HARD: FailureKind.CRASH,
    Fault.WRONG: FailureKind.WRONG_OUTPUT,
    Fault.WRONG_SHAPE: FailureKind.WRONG_OUTPUT,
    Fault.WRONG_DTYPE: FailureKind.WRONG_OUTPUT,
    Fault.NAN: FailureKind.WRONG_OUTPUT,
    Fault.RAISES: FailureKind.RUN_ERROR,
    Fault.SLOW: None,
}


def test_every_fault_has_an_expectation():
    assert set(EXPECTED) == set(Fault)


@pytest.mark.parametrize("fault", [f for f in Fault if f is not Fault.NONE])
def test_one_fault_among_good_ones(runner: LocalRunner, fault: Fault):
    configs = [config(Fault.NONE, 0), config(fault), config(Fault.NONE, 1), config(Fault.NONE, 2)]
    found = by_config(list(runner.measure(job(configs))))
    assert set(found) == set(configs)
    assert found[config(fault)].failure == EXPECTED[fault]
    assert all(found[config(Fault.NONE, number)].ok for number in range(3))
    again = list(runner.measure(job([config(Fault.NONE, 3)])))
    assert [m.ok for m in again] == [True]


def test_all_faults_in_one_batch(runner: LocalRunner):
    configs = [config(fault, number) for number in range(2) for fault in Fault]
    found = by_config(list(runner.measure(job(configs))))
    assert set(found) == set(configs)
    for fault, kind in EXPECTED.items():
        assert found[config(fault, 0)].failure == kind, fault
        assert found[config(fault, 1)].failure == kind, fault


def test_messages_say_what_happened(runner: LocalRunner):
    faults = [Fault.SEGFAULTS, Fault.EXITS_HARD, Fault.RAISES, Fault.WRONG, Fault.WRONG_SHAPE]
    found = by_config(list(runner.measure(job([config(f) for f in faults]))))
    assert "SIGSEGV" in found[config(Fault.SEGFAULTS)].message
    assert "status 7" in found[config(Fault.EXITS_HARD)].message
    assert "the kernel raised" in found[config(Fault.RAISES)].message
    assert found[config(Fault.WRONG)].max_relative_error == pytest.approx(0.05)
    assert "(5, 4)" in found[config(Fault.WRONG_SHAPE)].message


def test_good_candidates_are_checked_and_timed(runner: LocalRunner):
    configs = [config(Fault.NONE, number) for number in range(20)]
    found = by_config(list(runner.measure(job(configs))))
    assert set(found) == set(configs)
    for measurement in found.values():
        assert measurement.max_relative_error == 0.0
        assert min(measurement.seconds) >= 0.0002
        assert measurement.build_seconds > 0.0
        assert measurement.run_seconds > 0.0


def test_a_slow_candidate_gets_one_repeat(runner: LocalRunner):
    configs = [config(Fault.SLOW, 0)]
    best = next(iter(runner.measure(job([config(Fault.NONE)])))).cost
    slow = job(configs)
    slow = type(slow)(task=slow.task, space=slow.space, configs=configs, best_seconds=best)
    [measurement] = runner.measure(slow)
    assert measurement.ok
    assert len(measurement.seconds) == 1


def test_an_empty_job(runner: LocalRunner):
    assert list(runner.measure(job([]))) == []

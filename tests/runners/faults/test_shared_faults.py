"""Faults of candidates, played against every runner: one result each, of the right kind."""

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import threading
from collections import Counter

import psutil
import pytest
from chameleon_core._measurement import FailureKind
from chameleon_core.plugin_api import Contender
from chameleon_testing.conformance import check_runner
from faults import FAULTS, Fault, config

from ..conftest import (  # noqa: TID252 - tests are no package
    TASK,
    by_config,
    carriers,
    eventually,
    fault_space,
    folders,
    job,
    process_stamp,
)
from .conftest import EXPECTED, HARNESSES, Harness, make_fleet


def test_every_fault_has_an_expectation():
    assert set(EXPECTED) == set(Fault)


@pytest.mark.full
def test_all_faults_in_one_batch(harness, tmp_path):
    with harness.make(tmp_path) as runner, _nothing_is_left(runner):
        good = [config(Fault.NONE, number) for number, _ in enumerate(Fault, 1)]
        faults = [config(fault) for fault in Fault]
        configs = [each for pair in zip(faults, good, strict=True) for each in pair]
        measurements = by_config(list(runner.measure(job(configs))))
        again = list(runner.measure(job([config(Fault.NONE, 4001)])))
    assert {FAULTS[c[0]]: measurements[c].failure for c in faults} == {
        fault: harness.expected(fault) for fault in Fault
    }
    assert [m.message for m in again + [measurements[c] for c in good] if not m.ok] == []
    assert "SIGSEGV" in measurements[config(Fault.SEGFAULTS)].message
    assert "status 7" in measurements[config(Fault.EXITS_HARD)].message
    assert "the kernel raised" in measurements[config(Fault.RAISES)].message
    assert "(5, 4)" in measurements[config(Fault.WRONG_SHAPE)].message
    assert measurements[config(Fault.WRONG)].max_relative_error == pytest.approx(0.05)


@pytest.mark.full
def test_conformance(harness, tmp_path):
    faults = [Fault.NONE, Fault.INVALID, Fault.WRONG, Fault.RAISES, Fault.EXITS_HARD]
    configs = [*map(config, faults), config(Fault.NONE, 1)]
    measurements = by_config(check_runner(lambda: harness.make(tmp_path), job(configs)))
    good = [measurements[config(Fault.NONE, number)] for number in range(2)]
    assert all(m.max_relative_error == 0.0 and min(m.seconds) >= 0.0002 for m in good)
    assert all(m.build_seconds > 0.0 and m.run_seconds > 0.0 for m in good)


def test_an_interrupted_batch_ends_after_what_is_in_flight(harness, tmp_path):
    configs = [config(Fault.NONE, number) for number in range(300)]
    collected = []
    with harness.make(tmp_path) as runner:
        for measurement in runner.measure(job(configs)):
            collected.append(measurement)
            runner.interrupt()
        assert list(runner.measure(job(configs))) == []
    assert 0 < len(by_config(collected)) < 100


def test_an_abandoned_batch_leaves_a_usable_runner(harness, tmp_path):
    with harness.make(tmp_path) as runner:
        measurements = runner.measure(job([config(Fault.NONE, number) for number in range(40)]))
        next(iter(measurements))
        measurements.close()
        configs = [config(Fault.NONE, number) for number in range(3)]
        assert all(m.ok for m in by_config(list(runner.measure(job(configs)))).values())


def test_closing_from_another_thread_ends_a_hang(harness, tmp_path, monkeypatch):
    monkeypatch.undo()  # the hang is to last
    with harness.make(tmp_path, run_timeout=900.0, run_floor=900.0) as runner:
        threading.Timer(1.0, runner.close).start()
        assert list(runner.measure(job([config(Fault.HANGS)]))) == []
        runner.close()
        assert list(runner.measure(job([config(Fault.NONE)]))) == []


def test_nobody_to_compare_and_nothing_to_measure(harness, tmp_path):
    with harness.make(tmp_path) as runner:
        assert runner.compare(TASK, []) == []
        assert list(runner.measure(job([]))) == []


def test_an_interrupt_while_a_comparison_begins(harness, tmp_path, monkeypatch):
    with harness.make(tmp_path) as runner:
        compared = runner._comparison

        def interrupted(*arguments):
            runner.interrupt()
            return compared(*arguments)

        monkeypatch.setattr(runner, "_comparison", interrupted)
        contender = Contender(name="tuned", stage=fault_space(), config=config(Fault.NONE))
        [measurement] = runner.compare(TASK, [contender])
    assert "interrupted" in measurement.message


CHILD = """
import signal, sys
from pathlib import Path
from chameleon_core.plugin_api import MeasureJob, StageRef
from chameleon_core._task import Task
from chameleon_runners._fleet.options import FleetOptions
from chameleon_runners._fleet.runner import FleetRunner
from chameleon_runners._local.options import LocalOptions
from chameleon_runners._local.runner import LocalRunner
from fault_devices import fault_device_ref
from faults import Fault, config
# A shell without job control starts what runs in its background with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
patient = {"run_timeout": 100.0, "run_floor": 100.0}
if sys.argv[1] == "local":
    made = LocalRunner(LocalOptions(**patient, workers=2, leaders=0))
else:
    refs = [fault_device_ref(name, Path(sys.argv[2])) for name in "ab"]
    made = FleetRunner(FleetOptions(**patient, workers=1), lambda: refs, kind="fake")
task = Task(name="faults", operator="fault", arguments={}, target="none", flop=1.0)
space = StageRef(factory="faults:FaultSpace", options={})
configs = [config(Fault.FORKS), *(config(Fault.NONE, number) for number in range(100))]
configs += [config(Fault.HANGS, number) for number in range(2)]
with made as runner:
    for measurement in runner.measure(MeasureJob(task=task, space=space, configs=configs)):
        print("measured", flush=True)
"""


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("kind", HARNESSES)
def test_a_runner_that_is_ended_leaves_nothing(kind, tmp_path, number):
    words = [sys.executable, "-c", CHILD, kind, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        try:
            stamp = process_stamp(child.pid)
            child.stdout.readline()
            assert carriers(stamp)
            assert folders(stamp)
            child.send_signal(number)
            child.wait(240)
        finally:
            child.kill()
    # The workers go at once; what they started, and the folder, with the next runner's start.
    with HARNESSES[kind].make(tmp_path) as runner:
        assert all(m.ok for m in runner.measure(job([config(Fault.NONE)])))
        assert eventually(lambda: carriers(stamp) == [])
        assert folders(stamp) == []


def test_descriptors_that_select_does_not_know(harness, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip(f"at most {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    descriptors = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with harness.make(tmp_path) as runner:
            configs = [config(Fault.NONE, number) for number in range(3)]
            assert all(m.ok for m in by_config(list(runner.measure(job(configs)))).values())
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


RATES = {Fault.SEGFAULTS: 0.05, Fault.HANGS: 0.05, Fault.WRONG: 0.05, Fault.DISCONNECTS: 0.05}


def _drawn(count, seed):
    drawn = random.Random(seed)
    kinds = [*RATES, Fault.NONE]
    weights = [*RATES.values(), 1.0 - sum(RATES.values())]
    return [config(drawn.choices(kinds, weights)[0], number) for number in range(count)]


def _play(harness, folder, count, *, blamed=0, **options):
    """Measure drawn faults; at most some candidates are blamed for what their devices did."""
    configs = _drawn(count, seed=1)
    with harness.make(folder, **options) as runner, _nothing_is_left(runner):
        measurements = by_config(list(runner.measure(job(configs))))
    assert set(measurements) == set(configs)
    expected = {c: harness.expected(FAULTS[c[0]]) for c in configs}
    others = [m.failure for c, m in measurements.items() if m.failure is not expected[c]]
    assert len(others) <= blamed
    assert {*others} <= {FailureKind.CRASH}


@contextlib.contextmanager
def _nothing_is_left(runner):
    """Processes, descriptors and memory are no more than after a first measurement."""
    list(runner.measure(job([config(Fault.NONE, 4000)])))
    before = _footprint()
    yield
    after = _footprint()
    assert after["processes"] <= before["processes"]
    assert after["descriptors"] <= before["descriptors"]
    assert after["memory"] < before["memory"] + (32 << 20)


def _footprint():
    own = psutil.Process()
    return {
        "processes": len(own.children()),
        "descriptors": own.num_fds(),
        "memory": own.memory_info().rss,
    }


@pytest.mark.long
def test_five_hundred_candidates(harness, tmp_path):
    _play(harness, tmp_path, 500)


@pytest.mark.long
def test_five_hundred_candidates_on_devices_that_disconnect(tmp_path, hangs_end_soon):
    options = {"rates": {"disconnects": 0.05}, "retries": 4}
    # A verdict blames one good candidate of 1000: of 500, more than three in one run of 550.
    _play(Harness(make=make_fleet), tmp_path, 500, blamed=3, **options)


@pytest.mark.full
def test_failing_devices_cost_no_result(tmp_path):
    kinds = ["crashes", "lies", "disconnects", "corrupts", "fills_up", "runs_out_of_memory"]
    rates = dict.fromkeys(kinds, 0.03)
    configs = [config(Fault.NONE, number) for number in range(60)]
    with make_fleet(tmp_path, devices=4, rates=rates, retries=6) as runner:
        measurements = by_config(list(runner.measure(job(configs))))
    failures = Counter(m.failure for m in measurements.values() if not m.ok)
    assert set(measurements) == set(configs)
    # Two devices may, at these rates, make the same mistake with one candidate.
    assert failures.total() <= 2
    assert not failures[FailureKind.DEVICE_LOST]

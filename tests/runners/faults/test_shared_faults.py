"""Faults of candidates, played against every runner: one result each, of the right kind."""

from __future__ import annotations

import os
import random
import resource
import threading
from collections import Counter
from pathlib import Path

import psutil
import pytest
from chameleon_core.measurement import FailureKind
from chameleon_runners.testing.faults import FAULTS, Fault, config
from chameleon_testing.conformance_hardware import check_runner

from ..conftest import by_config, job  # noqa: TID252 - tests are no package
from .conftest import EXPECTED, Harness, make_fleet


def test_every_fault_has_an_expectation():
    assert set(EXPECTED) == set(Fault)


def test_all_faults_in_one_batch(harness: Harness, tmp_path: Path):
    with harness.make(tmp_path) as runner:
        found = by_config(list(runner.measure(job([config(fault) for fault in Fault]))))
        again = list(runner.measure(job([config(Fault.NONE, 1)])))
    assert {FAULTS[c[0]]: m.failure for c, m in found.items()} == {
        fault: harness.expected(fault) for fault in Fault
    }
    assert [m.ok for m in again] == [True]
    assert "SIGSEGV" in found[config(Fault.SEGFAULTS)].message
    assert "status 7" in found[config(Fault.EXITS_HARD)].message
    assert "the kernel raised" in found[config(Fault.RAISES)].message
    assert "(5, 4)" in found[config(Fault.WRONG_SHAPE)].message
    assert found[config(Fault.WRONG)].max_relative_error == pytest.approx(0.05)


def test_conformance(harness: Harness, tmp_path: Path):
    faults = [Fault.NONE, Fault.INVALID, Fault.WRONG, Fault.RAISES, Fault.EXITS_HARD]
    configs = [config(fault, number) for number in range(3) for fault in faults]
    found = by_config(check_runner(lambda: harness.make(tmp_path), job(configs)))
    good = [found[config(Fault.NONE, number)] for number in range(3)]
    assert all(m.max_relative_error == 0.0 and min(m.seconds) >= 0.0002 for m in good)
    assert all(m.build_seconds > 0.0 and m.run_seconds > 0.0 for m in good)


def test_an_interrupted_batch_ends_after_what_is_in_flight(harness: Harness, tmp_path: Path):
    configs = [config(Fault.NONE, number) for number in range(300)]
    found = []
    with harness.make(tmp_path) as runner:
        for measurement in runner.measure(job(configs)):
            found.append(measurement)
            runner.interrupt()
        assert list(runner.measure(job(configs))) == []
    assert 0 < len(by_config(found)) < 100


def test_an_abandoned_batch_leaves_a_usable_runner(harness: Harness, tmp_path: Path):
    with harness.make(tmp_path) as runner:
        measurements = runner.measure(job([config(Fault.NONE, number) for number in range(40)]))
        next(iter(measurements))
        measurements.close()  # type: ignore[attr-defined]
        configs = [config(Fault.NONE, number) for number in range(3)]
        assert all(m.ok for m in by_config(list(runner.measure(job(configs)))).values())


def test_closing_from_another_thread_ends_a_hang(harness: Harness, tmp_path: Path):
    with harness.make(tmp_path, run_timeout=300.0, run_floor=300.0) as runner:
        threading.Timer(1.0, runner.close).start()
        assert list(runner.measure(job([config(Fault.HANGS)]))) == []
        runner.close()
        assert list(runner.measure(job([config(Fault.NONE)]))) == []


def test_descriptors_that_select_does_not_know(harness: Harness, tmp_path: Path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip(f"at most {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with harness.make(tmp_path) as runner:
            configs = [config(Fault.NONE, number) for number in range(3)]
            assert all(m.ok for m in by_config(list(runner.measure(job(configs)))).values())
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


RATES = {Fault.SEGFAULTS: 0.05, Fault.HANGS: 0.05, Fault.WRONG: 0.05, Fault.DISCONNECTS: 0.05}


def _drawn(count: int, seed: int) -> list[tuple[int, int]]:
    drawn = random.Random(seed)
    kinds = [*RATES, Fault.NONE]
    weights = [*RATES.values(), 1.0 - sum(RATES.values())]
    return [config(drawn.choices(kinds, weights)[0], number) for number in range(count)]


def _play(harness: Harness, folder: Path, count: int, **options: float) -> None:
    configs = _drawn(count, seed=1)
    with harness.make(folder, run_timeout=0.6, run_floor=0.6, **options) as runner:
        list(runner.measure(job([config(Fault.NONE, 4000)])))
        before = _footprint()
        found = by_config(list(runner.measure(job(configs))))
        after = _footprint()
    assert set(found) == set(configs)
    kinds = {c: m.failure for c, m in found.items()}
    assert kinds == {c: harness.expected(FAULTS[c[0]]) for c in configs}
    assert after["processes"] <= before["processes"]
    assert after["descriptors"] <= before["descriptors"]
    assert after["memory"] < before["memory"] + (32 << 20)


def _footprint() -> dict[str, int]:
    own = psutil.Process()
    return {
        "processes": len(own.children()),
        "descriptors": own.num_fds(),
        "memory": own.memory_info().rss,
    }


def test_many_faults(harness: Harness, tmp_path: Path):
    _play(harness, tmp_path, 50)


@pytest.mark.long
def test_five_hundred_candidates(harness: Harness, tmp_path: Path):
    _play(harness, tmp_path, 500)


@pytest.mark.long
def test_five_hundred_candidates_on_devices_that_disconnect(tmp_path: Path):
    harness = Harness(make=make_fleet)
    _play(harness, tmp_path, 500, rates={"disconnects": 0.05}, retries=4)  # type: ignore[arg-type]


def test_failing_devices_cost_no_result(tmp_path: Path):
    kinds = ["crashes", "lies", "disconnects", "corrupts", "fills_up", "runs_out_of_memory"]
    rates = dict.fromkeys(kinds, 0.03)
    configs = [config(Fault.NONE, number) for number in range(60)]
    with make_fleet(tmp_path, devices=4, rates=rates, retries=6) as runner:
        found = by_config(list(runner.measure(job(configs))))
    failures = Counter(m.failure for m in found.values() if not m.ok)
    assert set(found) == set(configs)
    # Two devices may, at these rates, make the same mistake with one candidate.
    assert failures.total() <= 2
    assert not failures[FailureKind.DEVICE_LOST]

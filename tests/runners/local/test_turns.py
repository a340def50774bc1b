"""While a kernel is timed nobody else works: not to build, not to start, not even in the back."""

import sys
from collections import Counter

import attrs
import pytest
from chameleon_core.plugin_api import Contender, Disturbance, MeasureJob
from chameleon_runners._engine.process_pool import ProcessPool
from chameleon_runners._local.options import LocalOptions
from chameleon_runners._local.runner import LocalRunner
from faults import Fault, config
from marks import full

from ..conftest import QUICK, TASK, drained, fault_space, job  # noqa: TID252 - tests are no package

FAULTS = [Fault.NONE, Fault.NONE, Fault.SEGFAULTS, Fault.BUILD_SEGFAULTS, Fault.NONE, Fault.NONE]


@pytest.fixture
def asked(monkeypatch):
    """Counts commands; fails where a kernel is to be timed beside anything else."""
    counted = Counter()
    submit = ProcessPool.submit

    def watched(pool, worker, then, message, timeout):
        counted[message["command"]] += 1
        if message["command"] in {"measure", "repeat"}:
            others = [other for other in pool.workers if other is not worker]
            assert [other.work for other in others if other.work is not None] == []
            assert all(other.paused for other in others)
        submit(pool, worker, then, message, timeout)

    monkeypatch.setattr(ProcessPool, "submit", watched)
    return counted


@pytest.mark.full
def test_in_a_batch(runner, asked):
    configs = [config(fault, number) for number in range(3) for fault in FAULTS]
    assert len(list(runner.measure(job(configs)))) == len(configs)
    assert asked["build"] >= len(configs)
    assert asked["measure"] >= 2 * len(configs) // 3
    assert asked["repeat"] > 0


@pytest.mark.parametrize(
    ("count", "rounds", "agree", "share"),
    [
        full(2, {"leaders": 1}, True, 1),
        (2, {"leaders": 2}, False, 0.5),
        full(9, {"leaders": 9}, False, 1),
        (2, {"leaders": 2, "leader_rounds": 1}, True, 1),
    ],
)
def test_timing_is_shorter_if_all_kernels_are_timed_again(monkeypatch, count, rounds, agree, share):
    asked = set()
    submit = ProcessPool.submit

    def watched(pool, worker, then, message, timeout):
        if message["command"] == "measure":
            asked.add((message["policy"]["max_repeats"], message["policy"]["turn_seconds"]))
        submit(pool, worker, then, message, timeout)

    monkeypatch.setattr(ProcessPool, "submit", watched)
    options = LocalOptions(**{**QUICK, **rounds})
    with LocalRunner(options) as runner:
        configs = [config(Fault.NONE, number) for number in range(count)]
        assert len(list(runner.measure(job(configs)))) == count
    repeats = options.max_repeats if agree else options.min_repeats
    assert asked == {(repeats, share * options.turn_seconds)}


def test_of_several_tasks(runner, asked):
    with runner.stream() as stream:
        for number, fault in enumerate(FAULTS):
            task = attrs.evolve(TASK, name=f"op{number}", arguments={"n": number})
            stream.submit(MeasureJob(task=task, space=fault_space(), configs=[config(fault)]))
        assert len(drained(stream)) == len(FAULTS)
    assert asked["measure"] >= len(FAULTS) - 1


def test_in_a_comparison(runner, asked):
    contenders = [
        Contender(name=str(number), stage=fault_space(), config=config(Fault.NONE, number))
        for number in range(3)
    ]
    assert all(m.ok for m in runner.compare(TASK, contenders))
    assert asked["measure"] == len(contenders)
    assert asked["repeat"] >= len(contenders)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what others used")
def test_what_disturbs_timing_is_read_around_each_of_them(runner):
    assert runner.disturbance() == Disturbance()
    configs = [config(Fault.NONE, number) for number in range(6)]
    assert all(m.ok for m in runner.measure(job(configs)))
    result = runner.disturbance()
    assert result.core_seconds > 0.0
    assert result.stolen_seconds + result.others_seconds >= 0.0
    assert 0 <= result.kept <= result.pairs <= 15


@pytest.mark.parametrize(
    ("options", "weights", "cold"),
    [
        ({}, 0, 0),
        ({}, 1 << 20, 1 << 20),
        ({}, 1 << 40, 64 << 20),
        ({"cold_bytes": 0}, 1 << 20, 0),
        ({"cold_bytes": 7}, 1 << 20, 7),
    ],
)
def test_weights_are_as_cold_as_in_the_network(monkeypatch, options, weights, cold):
    asked = set()
    submit = ProcessPool.submit

    def watched(pool, worker, then, message, timeout):
        if message["command"] in {"measure", "repeat"}:
            policy = message.get("policy", message)
            asked.add(policy["cold_bytes"])
        submit(pool, worker, then, message, timeout)

    monkeypatch.setattr(ProcessPool, "submit", watched)
    task = attrs.evolve(TASK, cold_bytes=weights)
    assert task.key == TASK.key
    with LocalRunner(LocalOptions(**QUICK, **options)) as runner:
        assert len(list(runner.measure(attrs.evolve(job([config(Fault.NONE)]), task=task)))) == 1
    assert asked == {cold}

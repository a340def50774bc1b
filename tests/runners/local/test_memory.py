"""Kernels that hold much memory: so many are held at once as fit, and none fails for the others."""

import sys

import pytest
from chameleon_core._measurement import FailureKind
from chameleon_core.plugin_api import Contender
from chameleon_runners._engine.worker_process import WorkerProcess
from chameleon_runners._engine.workers import EndReason
from faults import Fault, config
from marks import full

from ..conftest import TASK, by_config, fault_space, job  # noqa: TID252 - tests are no package

MANY = [config(Fault.NONE, number) for number in range(14)]


@pytest.mark.parametrize(
    ("kernel_mib", "run_mib"), [(70, 0), (0, 70), full(40, 40), (150, 0), full(100, 100)]
)
def test_as_many_kernels_are_held_as_fit(runner, kernel_mib, run_mib):
    table = by_config(list(runner.measure(job(MANY, kernel_mib=kernel_mib, run_mib=run_mib))))
    assert {row: table[row].message for row in table if not table[row].ok} == {}
    assert set(table) == set(MANY)


@pytest.mark.parametrize("option", ["kernel_mib", "run_mib"])
def test_one_that_does_not_fit_alone_fails(runner, option):
    table = by_config(list(runner.measure(job(MANY[:5], **{option: 4096}))))
    assert {row.failure for row in table.values()} == {FailureKind.OUT_OF_MEMORY}
    assert all("memory_mib of the runner" in row.message for row in table.values())


@pytest.fixture
def starved(monkeypatch):
    """Workers that exceed the memory limit as soon as they only keep a kernel."""

    def memory(worker):
        return sys.maxsize if worker.build_count and worker.work is None else 0

    monkeypatch.setattr(WorkerProcess, "memory", property(memory))


@pytest.mark.full
def test_a_kernel_that_is_too_large_to_keep_fails(runner, starved):
    table = by_config(list(runner.measure(job(MANY[:3]))))
    assert {row.failure for row in table.values()} == {FailureKind.OUT_OF_MEMORY}
    assert set(table) == set(MANY[:3])


@pytest.mark.full
def test_a_contender_that_is_too_large_to_keep_fails(runner, starved):
    contenders = [
        Contender(name=f"{number}", stage=fault_space(), config=MANY[number]) for number in range(2)
    ]
    failures = {row.failure for row in runner.compare(TASK, contenders)}
    assert failures == {FailureKind.OUT_OF_MEMORY}


def test_others_go_on_beside_one_that_does_not_fit(runner):
    faults = [*MANY[:6], config(Fault.EATS_MEMORY), *MANY[6:]]
    table = by_config(list(runner.measure(job(faults, kernel_mib=40))))
    assert table.pop(config(Fault.EATS_MEMORY)).failure is FailureKind.OUT_OF_MEMORY
    assert all(row.ok for row in table.values())


@pytest.mark.full
@pytest.mark.parametrize("command", ["build", "measure", None])
def test_kernels_that_are_too_large_together_fit_alone(runner, monkeypatch, command):
    poll, submit = WorkerProcess.poll, WorkerProcess.submit

    def submitted(worker, tag, message, timeout):
        worker.command = message["command"]
        submit(worker, tag, message, timeout)

    def watched(worker):
        now = None if worker.work is None else getattr(worker, "command", "")
        if worker.alive and worker.build_count > 2 and now == command:
            worker.kill(EndReason.MEMORY)
        return poll(worker)

    monkeypatch.setattr(WorkerProcess, "submit", submitted)
    monkeypatch.setattr(WorkerProcess, "poll", watched)
    table = by_config(list(runner.measure(job(MANY))))
    assert {row: table[row].message for row in table if not table[row].ok} == {}
    assert set(table) == set(MANY)

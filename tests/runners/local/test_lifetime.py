"""Workers and files end with the runner, however it ends; killed workers cost no result."""

import contextlib
import os
import signal
import sys
import tempfile
import threading
import time

import attrs
import pytest
from chameleon_core._errors import PluginError, TargetError
from chameleon_runners._engine.worker_process import WorkerProcess
from chameleon_runners._local.options import LocalOptions
from chameleon_runners._local.runner import LocalRunner
from chameleon_system._processes.stamps import ProcessStamp
from faults import HANGING, Fault, config
from marks import full
from told_hangs import poll_impatiently

from ..conftest import QUICK, by_config, carriers, eventually, folders, job, killing  # noqa: TID252 - tests are no package


def _measure_under_fire(count, *, seed, pause):
    options = LocalOptions(**{**QUICK, "retries": 20})
    configs = [config(Fault.NONE, number) for number in range(count)]
    with LocalRunner(options) as runner, killing(runner, seed=seed, pause=pause) as measured:
        measurements, kills = measured(runner.measure(job(configs)))
    assert set(by_config(measurements)) == set(configs)
    assert [m.message for m in measurements if not m.ok] == []
    assert carriers() == []
    assert folders() == []
    return kills


def test_workers_start_ahead_only_if_something_is_to_be_measured():
    work = job([config(Fault.NONE)])
    for prepared in (True, False):
        runner = LocalRunner(LocalOptions(**QUICK))
        if prepared:
            runner.prepare(work.space)
        else:
            runner.start_late()
        with runner:
            # A process that was just started shows its environment a moment later.
            assert eventually(carriers) if prepared else carriers() == []
            assert [measurement.ok for measurement in runner.measure(work)] == [True]
        assert carriers() == []


def test_killed_workers_cost_no_result():
    assert _measure_under_fire(30, seed=1, pause=0.2) > 0


@pytest.mark.long
def test_killed_workers_cost_no_result_many_times():
    assert sum(_measure_under_fire(400, seed=seed, pause=0.2) for seed in range(10)) >= 50


@pytest.mark.full
def test_a_candidate_whose_worker_is_always_killed_is_a_crash():
    options = LocalOptions(**{**QUICK, "retries": 1, "workers": 1})
    with LocalRunner(options) as runner:
        killing = threading.Event()

        def kill_at_work():
            while not killing.wait(0.01):
                for pid in carriers():
                    workers = runner._start().pool.workers
                    busy = any(
                        w.pid == pid and w.work is not None and w.build_count for w in workers
                    )
                    if busy:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)

        thread = threading.Thread(target=kill_at_work)
        thread.start()
        try:
            [measurement] = runner.measure(job([config(Fault.HANGS)]))
        finally:
            killing.set()
            thread.join()
    assert measurement.failure == "crash"
    assert "SIGKILL" in measurement.message


@pytest.mark.parametrize(("ahead", "built"), [(3, 3), full(1, 1), full(0, 8)])
def test_results_that_are_ahead_do_not_wait_for_the_batch(ahead, built):
    configs = [config(Fault.NONE, n) for n in range(8)]
    with LocalRunner(LocalOptions(**{**QUICK, "ahead": ahead, "workers": 2})) as runner:
        measured = runner.measure(job(configs))
        first = [next(measured) for _ in range(max(ahead, 1))]
        assert sum(worker.build_count for worker in runner._start().pool.workers) == built
        assert {m.config for m in first} <= set(configs[:built])
        assert set(by_config([*first, *measured])) == set(configs)


def test_nothing_is_ahead_of_a_batch_when_there_is_a_best():
    configs = [config(Fault.NONE, n) for n in range(8)]
    with LocalRunner(LocalOptions(**{**QUICK, "ahead": 3, "leaders": 8})) as runner:
        measured = runner.measure(attrs.evolve(job(configs), best_seconds=0.0002))
        first = next(measured)
        assert sum(worker.build_count for worker in runner._start().pool.workers) == len(configs)
        assert set(by_config([first, *measured])) == set(configs)


def test_an_interrupt_while_a_batch_begins(runner, monkeypatch):
    original = runner._job_runs

    def interrupted(*arguments):
        runs = original(*arguments)
        runner.interrupt()
        return runs

    monkeypatch.setattr(runner, "_job_runs", interrupted)
    assert list(runner.measure(job([config(Fault.NONE, n) for n in range(50)]))) == []


@pytest.mark.parametrize(
    ("fault", "failure"),
    [(Fault.HANGS, "run_timeout"), (Fault.BUILD_HANGS, "build_timeout")],
)
def test_the_time_limit_ends_a_hang(fault, failure):
    with LocalRunner(LocalOptions(**{**QUICK, failure: 0.5})) as runner:
        [measurement] = runner.measure(job([config(fault)]))
    assert measurement.failure == failure


def test_interrupt_from_another_thread_while_a_kernel_hangs(monkeypatch):
    hangs = threading.Event()

    def poll(worker):
        if HANGING in worker.log:
            hangs.set()
            interrupting.join()
        return poll_impatiently(worker)

    monkeypatch.setattr(WorkerProcess, "poll", poll)
    with LocalRunner(LocalOptions(**QUICK)) as runner:
        interrupting = threading.Thread(target=lambda: hangs.wait() and runner.interrupt())
        interrupting.start()
        configs = [config(Fault.HANGS, number) for number in range(50)]
        [measurement] = runner.measure(job(configs))
    assert measurement.failure == "run_timeout"


def test_close_while_a_worker_is_being_started(monkeypatch):
    starting, go_on = threading.Event(), threading.Event()
    start = WorkerProcess.__init__

    def slow_start(worker, **arguments):
        start(worker, **arguments)
        starting.set()
        go_on.wait(240.0)

    monkeypatch.setattr(WorkerProcess, "__init__", slow_start)
    runner = LocalRunner(LocalOptions(**{**QUICK, "workers": 1}))
    filling = threading.Thread(target=runner.__enter__)
    filling.start()
    assert starting.wait(240.0)
    closing = threading.Thread(target=runner.close)
    closing.start()
    closing.join(0.2)
    go_on.set()
    filling.join()
    closing.join()
    assert carriers() == []


def test_workers_are_recycled():
    with LocalRunner(LocalOptions(**{**QUICK, "recycle_after": 5, "workers": 1})) as runner:
        first = carriers()
        assert eventually(lambda: len(carriers()) == 1)
        configs = [config(Fault.NONE, n) for n in range(20)]
        assert all(m.ok for m in runner.measure(job(configs)))
        list(runner.measure(job([config(Fault.NONE, 30)])))
        assert carriers() != first


def test_a_factory_that_does_not_exist(runner):
    wrong = job([config(Fault.NONE)])
    for factory in ("no_such_module:Space", "faults:NoSuchClass"):
        space = type(wrong.space)(factory=factory)
        with pytest.raises(PluginError, match=factory.partition(":")[2]):
            list(runner.measure(type(wrong)(task=wrong.task, space=space, configs=wrong.configs)))


def test_a_builder_that_raises_leaves_workers_to_the_one_before(runner):
    assert [m.ok for m in runner.measure(job([config(Fault.NONE)]))] == [True]
    with pytest.raises(PluginError, match="the builder cannot be made"):
        list(runner.measure(job([config(Fault.NONE)], opening="raises")))
    measurements = list(runner.measure(job([config(Fault.NONE, n) for n in range(4)])))
    assert [m.message for m in measurements if not m.ok] == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"opening": "exits"}, "status 4"),
        ({"no_such_option": 1}, "FaultOptions"),
        ({"reference": "missing"}, "no reference outputs"),
        ({"reference": "exits"}, "status 5"),
    ],
)
def test_a_stage_that_fails_is_an_error_of_the_plugin(runner, options, words):
    with pytest.raises(PluginError, match=words) as caught:
        list(runner.measure(job([config(Fault.NONE)], **options)))
    # A worker that ends may lack memory.
    assert ("memory_mib of" in (caught.value.hint or "")) is ("exits" in options.values())


def test_workers_that_cannot_start(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with LocalRunner(LocalOptions(**QUICK)) as runner, pytest.raises(TargetError, match="ready"):
        list(runner.measure(job([config(Fault.NONE)])))


def test_more_threads_than_cores():
    with pytest.raises(TargetError, match="usable cores"):
        LocalRunner(LocalOptions(threads=100_000))


def test_no_folder_of_a_dead_process_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = ProcessStamp.of(os.getpid())
    dead = tmp_path / f"chameleon-{attrs.evolve(own, pid=999999999)}-abc"
    dead.mkdir()
    (dead / "reference-0.npz").write_bytes(b"x")
    has_other_device = attrs.evolve(own, pid=999999999, namespace="1")
    others = {tmp_path / f"chameleon-{name}" for name in ("notes", f"{has_other_device}-abc")}
    for other in others:
        other.mkdir()
    with LocalRunner(LocalOptions(**QUICK)):
        time.sleep(0)
    assert set(tmp_path.iterdir()) == others

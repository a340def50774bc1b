"""Fixtures of the runner tests: a runner over the fault space, and what must not be left."""

import contextlib
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from chameleon_core._task import Task
from chameleon_core.plugin_api import MeasureJob, StageRef
from chameleon_runners._engine.worker_process import WorkerProcess
from chameleon_runners._local.options import LocalOptions
from chameleon_runners._local.runner import LocalRunner
from chameleon_system._processes.stamps import TOKEN, ProcessStamp
from told_hangs import poll_impatiently

FAULT_SPACE = "faults:FaultSpace"
TASK = Task(name="faults", operator="fault", arguments={}, target="none", flop=1.0)

QUICK = {
    "workers": 1,
    # Long enough for a busy machine: whoever hangs says so (`hangs_end_soon`).
    **dict.fromkeys(("build_timeout", "build_floor", "run_timeout", "run_floor"), 100.0),
    "memory_mib": 384,
    "repeat_seconds": 0.001,
    "min_repeats": 2,
    "max_repeats": 3,
    "leader_rounds": 2,
    "compare_rounds": 3,
}


def fault_space(**options):
    return StageRef(factory=FAULT_SPACE, options=options)


def job(configs, **options):
    return MeasureJob(task=TASK, space=fault_space(**options), configs=configs)


def by_config(measurements):
    result = {m.config: m for m in measurements}
    assert len(result) == len(measurements), "a configuration was measured twice"
    return result


def process_stamp(pid):
    return str(ProcessStamp.of(pid))


def carriers(stamp=None):
    """Processes that workers of a runner's process (this one's by default) are or started."""
    stamp = stamp or process_stamp(os.getpid())
    collected = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            token = process.environ().get(TOKEN, "")
            if token.startswith(f"{stamp}:") and process.status() != psutil.STATUS_ZOMBIE:
                collected.append(process.pid)
    return collected


def folders(stamp=None):
    """Folders that a runner's process (this one by default) has made and not removed."""
    stamp = stamp or process_stamp(os.getpid())
    existing = Path(tempfile.gettempdir()).glob(f"chameleon-{stamp}-*")
    return [folder for folder in existing if folder not in EARLIER]


EARLIER = set()
"""Folders that tests of other modules keep until this process ends."""


@pytest.fixture(autouse=True, scope="module")
def _folders_of_other_modules():
    EARLIER.clear()
    EARLIER.update(folders())


def eventually(condition, seconds=240.0):
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


@contextlib.contextmanager
def killing(runner, *, seed, pause):
    """Kill workers of a runner at random moments; collects measurements and counts the kills.

    However slow the machine is, the runner gets on: there is a result between two kills, and a
    worker is killed at its start only if all have started since the last one that was.
    """
    chance, stop, done = random.Random(seed), threading.Event(), Counter[str]()
    measurements = []

    def kill():
        seen, all_started = 0, False
        while not stop.wait(chance.uniform(0.2, 1.0) * pause):
            workers = list(runner._start().pool._workers)
            ready = [w for w in workers if w.work is None or w.work.tag != "init"]
            all_started |= len(ready) == len(workers)
            victims = workers if all_started else ready
            if victims and len(measurements) >= seen:
                victim = chance.choice(victims)
                all_started &= victim in ready
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim.pid, signal.SIGKILL)
                    done["kills"] += 1
                    seen = len(measurements) + 1

    def measured(stream):
        # One at a time, since another thread counts them.
        measurements.extend(iter(stream))
        return measurements, done["kills"]

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        yield measured
    finally:
        stop.set()
        thread.join()


def drained(stream):
    """All that a stream still brings, in order."""
    arrivals = []
    while stream.busy:
        arrival = stream.poll()
        if arrival is not None:
            arrivals.append((arrival.job, arrival.measurement))
    return arrivals


@pytest.fixture
def hangs_end_soon(monkeypatch):
    """A kernel that says that it hangs has used up its time limit."""
    monkeypatch.setattr(WorkerProcess, "poll", poll_impatiently)


@pytest.fixture
def runner_options():
    return LocalOptions(**QUICK)


@pytest.fixture
def runner(runner_options: LocalOptions, hangs_end_soon: None) -> Iterator[LocalRunner]:
    with LocalRunner(runner_options) as options:
        yield options
    assert carriers() == []
    assert folders() == []

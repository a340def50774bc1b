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
from chameleon_core.stages import MeasureJob, StageRef
from chameleon_core.task import Task
from chameleon_runners.local.options import LocalOptions
from chameleon_runners.local.runner import LocalRunner
from chameleon_system.processes.stamps import TOKEN, ProcessStamp

FAULT_SPACE = "chameleon_runners.testing.faults:FaultSpace"
TASK = Task(name="faults", operator="fault", arguments={}, target="none", flop=1.0)

QUICK = {
    "workers": 1,
    "build_timeout": 1.5,
    "build_floor": 1.0,
    "run_timeout": 1.0,
    "run_floor": 0.8,
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
    stamp = stamp or process_stamp(os.getpid())
    return list(Path(tempfile.gettempdir()).glob(f"chameleon-runner-{stamp}-*"))


def eventually(condition, seconds=30.0):
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


@contextlib.contextmanager
def killing(seed, pause):
    """Kill workers of this process at random moments, and count how many."""
    chance, stop, done = random.Random(seed), threading.Event(), Counter[str]()

    def kill():
        while not stop.wait(chance.uniform(0.2, 1.0) * pause):
            if workers := carriers():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(chance.choice(workers), signal.SIGKILL)
                    done["kills"] += 1

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    try:
        yield done
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
def runner_options():
    return LocalOptions(**QUICK)


@pytest.fixture
def runner(runner_options: LocalOptions) -> Iterator[LocalRunner]:
    with LocalRunner(runner_options) as options:
        yield options
    assert carriers() == []
    assert folders() == []

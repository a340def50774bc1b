"""The watch over the cores that kernels are timed on."""

from __future__ import annotations

import math
import os
import threading

import pytest
from chameleon_system._cores import CoreWatch, ThreadProbe


class Host:
    """A host that has put two virtual cores on one physical core until they rest often enough.

    Args:
        rests: rests after which it moves one of them; None for a host that never does.
        speed: seconds of the computation on a core of its own.
    """

    def __init__(self, rests, speed=1.0):
        self.left = rests
        self.speed = speed
        self.probes = 0
        self.slept: list[float] = []
        self.closed = 0

    def make(self, cores):
        assert list(cores) == [0, 1]
        return self

    def seconds(self, count):
        self.probes += 1
        return self.speed * (1.8 if count > 1 and self.left != 0 else 1.0)

    def close(self):
        self.closed += 1

    def rest(self, seconds):
        self.slept.append(seconds)
        if self.left:
            self.left -= 1

    def watch(self):
        return CoreWatch([0, 1], make_probe=self.make, rest=self.rest)


def test_cores_of_their_own_are_not_kept_waiting():
    host = Host(rests=0)
    watch = host.watch()
    assert watch.wait()
    first = host.probes
    assert watch.wait()
    assert host.slept == []
    assert host.probes == first + 1, "once the speed alone is known, one probe is enough"
    host.speed = 3.0
    assert watch.wait(), "all of them are slower alike"
    assert host.slept == []


@pytest.mark.parametrize("rests", [1, 2, 9])
def test_shared_cores_rest_until_the_host_moves_them(rests):
    host = Host(rests=rests)
    watch = host.watch()
    assert watch.wait()
    assert len(host.slept) == watch.rests == rests
    assert all(0.0 < seconds < 0.01 for seconds in host.slept)


def test_a_host_that_never_moves_them_is_asked_rarely():
    host = Host(rests=None)
    watch = host.watch()
    assert not watch.wait()
    probes, slept = host.probes, len(host.slept)
    assert sum(host.slept) < 0.5
    for _ in range(10):
        assert not watch.wait()
    assert (host.probes, len(host.slept)) == (probes, slept)
    host.left = 0
    assert any(watch.wait() for _ in range(100)), "it is asked again some time"


@pytest.mark.parametrize("cores", [[], [3]])
def test_fewer_than_two_cores_are_not_probed(cores):
    def make(_):
        raise AssertionError("nothing to probe")

    assert CoreWatch(cores, make_probe=make).wait()


def test_closing_ends_the_probe():
    host = Host(rests=0)
    with host.watch() as watch:
        watch.wait()
    watch.close()
    assert host.closed >= 1


def test_the_real_probe_computes_on_each_core_and_ends_its_threads():
    before = threading.active_count()
    core = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    probe = ThreadProbe([core, core])
    assert 0.0 < probe.seconds(1) < math.inf
    assert 0.0 < probe.seconds(2) < math.inf
    probe.close()
    probe.close()
    for thread in threading.enumerate():
        if thread.name.startswith("probe-"):
            thread.join(timeout=240.0)
    assert threading.active_count() <= before


def _settle_often(watch):
    for _ in range(20):
        watch.wait()


def test_closing_while_somebody_waits_keeps_nobody_waiting():
    core = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    for _ in range(20):
        probe = ThreadProbe([core, core])
        watch = CoreWatch([core, core], make_probe=lambda _, made=probe: made)
        waiting = threading.Thread(target=_settle_often, args=(watch,), daemon=True)
        waiting.start()
        probe.close()
        waiting.join(timeout=240.0)
        assert not waiting.is_alive()
        assert probe.seconds(2) == float("inf")

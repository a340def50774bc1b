"""Jobs of several tasks side by side, on simulated devices."""

from collections import Counter

import attrs
import pytest
from chameleon_core._measurement import FailureKind, Measurement
from chameleon_testing.conformance import check_runner
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_fleet import SimulatedFleetRunner

from ..conftest import drained  # noqa: TID252 - tests are no package
from .test_simulated_fleet import OPTIONS, job, right
from .test_simulated_fleet import fleet as simulated_fleet

DEVICES = 8


def fleet(outcome=right, devices=DEVICES, **about):
    return simulated_fleet(outcome, *map(str, range(devices)), **about)


def test_the_stream_conforms():
    check_runner(fleet, job(20))


def test_lanes_are_devices():
    with fleet(devices=3) as runner:
        assert runner.lanes == 3


def test_no_search_runs_beside_this_machines_cpu():
    with fleet(devices=6, here=True) as runner:
        assert runner.lanes == 0
        assert runner.batch_size == 12


@pytest.mark.parametrize("shared", [True, False])
def test_nothing_is_built_on_cpus_that_are_timed(shared):
    phases = {"building": [], "timing": []}

    def outcome(config, device):
        result = attrs.evolve(right(config), build_seconds=0.1 * (1 + config[0] % 3))
        now = runner.now()
        seconds = result.run_seconds if device else result.build_seconds
        phases["timing" if device else "building"].append((now, now + seconds))
        return result

    with fleet(outcome, devices=2, shared=shared) as runner, runner.stream() as stream:
        for name in "abc":
            stream.submit(job(30, name=name))
        assert len(drained(stream)) == 90
    overlap = any(
        start < other_end and other_start < end
        for start, end in phases["building"]
        for other_start, other_end in phases["timing"]
    )
    assert overlap is not shared


def test_a_target_may_have_other_devices():
    names = {None: ["gpu"], "none": ["cpu"]}
    runner = SimulatedFleetRunner(OPTIONS, right, lambda: names[runner._target])
    with runner:
        assert list(runner._devices.known) == ["gpu"]
        assert all(m.ok for m in runner.measure(job(3)))
        assert list(runner._devices.known) == ["cpu"]


def test_small_jobs_share_the_devices():
    def took(*, together):
        jobs = [job(4, name=name) for name in "abcd"]
        with fleet() as runner:
            list(runner.measure(job(16)))  # devices are connected, builders started
            before = runner.now()
            if together:
                with runner.stream() as stream:
                    for row in jobs:
                        stream.submit(row)
                    drained(stream)
            else:
                for row in jobs:
                    list(runner.measure(row))
            return runner.now() - before

    # Four jobs of half the fleet each: two waves instead of four, and builds besides.
    assert took(together=True) < 0.6 * took(together=False)


def test_an_older_job_comes_first():
    with fleet(devices=2) as runner, runner.stream() as stream:
        first, second = job(20, name="a"), job(4, name="b")
        stream.submit(first)
        stream.submit(second)
        order = [row for row, _ in drained(stream)]
    assert order[:18] == [first] * 18
    assert Counter(order) == {first: 20, second: 4}


def test_jobs_join_while_others_are_measured():
    with fleet() as runner, runner.stream() as stream:
        stream.submit(job(12, name="a"))
        result = [stream.poll() for _ in range(6)]
        late = job(12, name="b")
        stream.submit(late)
        rest = drained(stream)
    assert all(arrival is not None for arrival in result)
    assert len(rest) == 18
    assert sum(row is late for row, _ in rest) == 12


def test_the_time_runs_out_on_the_fleets_clock():
    with fleet() as runner, runner.stream() as stream:
        stream.submit(job(1))
        drained(stream)
        stream.submit(job(1))
        before = runner.now()
        assert stream.poll(timeout=0.1) is None
        assert runner.now() - before == pytest.approx(0.1)
        assert stream.poll() is not None


def test_whoever_is_woken_comes_back_with_nothing():
    with fleet() as runner, runner.stream() as stream:
        stream.submit(job(1))
        stream.wake()
        assert stream.poll() is None
        assert stream.busy
        assert stream.poll() is not None


def test_an_interruption_finishes_what_runs():
    with fleet() as runner, runner.stream() as stream:
        stream.submit(job(100, name="a"))
        stream.submit(job(100, name="b"))
        assert stream.poll() is not None
        runner.interrupt()
        assert 0 < len(drained(stream)) < 2 * DEVICES
        assert stream.poll() is None


def test_a_stream_that_is_closed_leaves_the_devices_to_the_next():
    with fleet() as runner:
        with runner.stream() as stream:
            stream.submit(job(100, name="a"))
            stream.poll()
        assert all(m.ok for m in runner.measure(job(20, name="b")))


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=5),
    devices=st.integers(1, 5),
    liar=st.booleans(),
    kind=st.sampled_from([FailureKind.CRASH, FailureKind.WRONG_OUTPUT, FailureKind.RUN_TIMEOUT]),
)
def test_every_candidate_of_every_job_has_one_result(sizes, devices, liar, kind):
    def outcome(config, device):
        if config[0] % 5 == 0 or (liar and device == "0" and devices > 2):
            return Measurement(config=config, failure=kind, message="it failed", run_seconds=0.1)
        return right(config, device)

    arrived = []
    jobs = [job(size, name=f"task{number}") for number, size in enumerate(sizes)]
    with fleet(outcome, devices) as runner, runner.stream() as stream:
        for row in jobs:
            stream.submit(row)
            early = stream.poll(timeout=0.3)
            if early is not None:
                arrived.append((early.job, early.measurement))
        arrived += drained(stream)
    result = Counter((row.task.name, measurement.config) for row, measurement in arrived)
    assert result == Counter((row.task.name, config) for row in jobs for config in row.configs)
    assert all(m.ok for _, m in arrived if m.config[0] % 5)

"""Devices that are slower than their fleet, or faster, are found and set aside."""

import random
from collections import Counter
from typing import Any

import attrs
import pytest
from chameleon_core._measurement import FailureKind, Measurement
from chameleon_runners._fleet.options import FleetOptions
from chameleon_runners._fleet.runner import FleetRunner
from fault_devices import fault_device_ref
from faults import Fault, config
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_fleet import SimulatedFleetRunner
from structlog.testing import capture_logs

from ..conftest import carriers, eventually, folders  # noqa: TID252 - tests are no package
from ..conftest import job as fault_job  # noqa: TID252
from .test_fleet_processes import OPTIONS as PROCESS_OPTIONS
from .test_simulated_fleet import OPTIONS, job, right, state_of


class Fleet:
    """Simulated devices, each with times of its own.

    Args:
        factors: by device name, how many times as long a kernel takes there.
        options: of the runner.
        more: of the simulated runner.
    """

    def __init__(self, factors: dict[str, float], **options: Any) -> None:
        self.factors = dict(factors)
        self.given: Counter[str] = Counter()
        self.repeated: Counter[str] = Counter()
        self._seen: set[tuple[int, ...]] = set()
        chosen = attrs.evolve(OPTIONS, **options)
        self.runner = SimulatedFleetRunner(chosen, self.outcome, lambda: list(self.factors))

    def outcome(self, config, device):
        measurement = right(config)
        if not device:
            return measurement
        self.given[device] += 1
        self.repeated[device] += config in self._seen
        self._seen.add(config)
        # Candidates differ by a third; the reading of one does not depend on which it is.
        seconds = (1.0 + random.Random(config[0]).random() / 3) * 1e-3
        seconds *= self.factors[device] * self.noise(device)
        return attrs.evolve(measurement, seconds=(seconds,) * 3)

    def noise(self, device):
        del device
        return 1.0

    def measure(self, count):
        """Measure candidates; returns the warnings that were logged."""
        with capture_logs() as logs:
            assert all(m.ok for m in self.runner.measure(job(count)))
        return [log for log in logs if log["log_level"] == "warning"]


def named(warnings):
    return [(w["device"], w["ratio"]) for w in warnings if w["event"] == "device_out_of_pace"]


@pytest.mark.parametrize("others", [1, 2, 7])
def test_a_slow_device_is_named_once_and_set_aside(others):
    fleet = Fleet({"slow": 2.0, **{str(number): 1.0 for number in range(others)}})
    with fleet.runner:
        assert named(fleet.measure(200)) == [("slow", 2.0)]
        slow, good = (state_of(fleet.runner, name) for name in ("slow", "0"))
    assert slow["state"] == "away"
    assert slow["pace"] == 2.0
    assert slow["reason"] == "its times are 2.00 times those of the fleet's median device"
    assert good["pace"] == 1.0
    # Its first candidate was on its way when nothing was known; the others were the yardstick.
    assert fleet.given["slow"] - fleet.repeated["slow"] <= 2


def test_a_device_that_is_too_fast_spoils_the_search_as_well():
    fleet = Fleet({"a": 1.0, "b": 1.0, "fast": 0.5, "c": 1.0})
    with fleet.runner:
        assert named(fleet.measure(200)) == [("fast", 0.5)]
        assert state_of(fleet.runner, "fast")["state"] == "away"


def test_of_two_the_slower_one_is_to_blame():
    fleet = Fleet({"a": 1.0, "b": 0.5})
    with fleet.runner:
        assert named(fleet.measure(50)) == [("a", 2.0)]


def test_a_device_that_slows_down_later_is_found():
    fleet = Fleet(dict.fromkeys("abc", 1.0))
    with fleet.runner:
        assert named(fleet.measure(100)) == []
        fleet.factors["b"] = 1.5
        assert named(fleet.measure(200)) == [("b", 1.5)]


def test_a_device_that_is_fast_again_is_taken_back():
    fleet = Fleet({"a": 1.0, "b": 2.0, "c": 1.0})
    with fleet.runner:
        fleet.measure(20)
        assert state_of(fleet.runner, "b")["state"] == "away"
        fleet.factors["b"] = 1.0
        before = fleet.given["b"]
        assert named(fleet.measure(400)) == []
        assert state_of(fleet.runner, "b")["pace"] == 1.0
    assert fleet.given["b"] - before > 50


def test_who_is_named_alone_goes_on():
    fleet = Fleet({"slow": 2.0, "a": 1.0, "b": 1.0}, pace_aside=False)
    with fleet.runner:
        assert named(fleet.measure(600)) == [("slow", 2.0)]
        assert state_of(fleet.runner, "slow") == {"name": "slow", "state": "ready", "pace": 2.0}
    assert fleet.given["slow"] > 100


def test_nothing_is_compared_where_nobody_asks():
    fleet = Fleet({"slow": 2.0, "a": 1.0}, pace_tolerance=None)
    with fleet.runner:
        assert fleet.measure(200) == []
    assert not fleet.repeated.total()


def test_what_differs_less_than_the_tolerance_is_left_alone():
    fleet = Fleet({"a": 1.0, "b": 1.2, "c": 0.9})
    with fleet.runner:
        assert fleet.measure(300) == []


@pytest.mark.parametrize("devices", [1, 2, 8])
def test_readings_cost_one_in_fifty(devices):
    fleet = Fleet({str(number): 1.0 for number in range(devices)})
    with fleet.runner:
        fleet.measure(100 * devices)
    assert all(repeats <= 1 + 2 for repeats in fleet.repeated.values())
    assert fleet.repeated.total() >= (2 * (devices - 1) if devices > 1 else 0)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1000), devices=st.integers(2, 6))
def test_noise_sets_nobody_aside(seed, devices):
    drawn = random.Random(seed)

    class Noisy(Fleet):
        def noise(self, device):
            # One run in ten is disturbed, some by much; none is faster than it can be.
            return 1.0 + (drawn.random() < 0.1) * drawn.random()

    fleet = Noisy({str(number): 1.0 for number in range(devices)})
    with fleet.runner:
        fleet.measure(60)
        # Three disturbed readings in a row are one in a thousand; it is read again soon.
        assert len([d for d in fleet.runner.describe()["devices"] if d["state"] == "away"]) <= 1


def test_a_device_that_fails_on_what_others_ran_is_struck_and_waited_for():
    fleet = Fleet(dict.fromkeys("abc", 1.0))
    plain = fleet.outcome

    def outcome(config, device):
        repeat = device == "b" and config in fleet._seen
        result = plain(config, device)
        if repeat:
            kind = FailureKind.WRONG_OUTPUT
            return Measurement(config=config, failure=kind, message="no", run_seconds=0.2)
        return result

    runner = SimulatedFleetRunner(OPTIONS, outcome, lambda: list("abc"))
    with runner, capture_logs() as logs:
        assert all(m.ok for m in runner.measure(job(200)))
        assert state_of(runner, "a")["pace"] == 1.0
        assert "pace" not in state_of(runner, "b")
    assert [log for log in logs if log["event"] == "device_out_of_pace"] == []


@pytest.mark.full
def test_a_slow_device_of_real_processes(tmp_path):
    device_refs = [
        fault_device_ref("slow", tmp_path, pace=4.0),
        *(fault_device_ref(name, tmp_path) for name in "ab"),
    ]
    options = FleetOptions(**{**PROCESS_OPTIONS, "pace_tolerance": 2.0})
    configs = [config(Fault.NONE, number) for number in range(10)]
    with FleetRunner(options, lambda: device_refs, kind="fake") as runner:

        def devices():
            """What is known of each device after another batch."""
            measurements = list(runner.measure(fault_job(configs, seconds=0.002)))
            assert len(measurements) == 10
            assert all(m.ok for m in measurements)
            return {device["name"]: device for device in runner.describe()["devices"]}

        # On a busy machine one of them may start when the others are done with the first batches.
        assert eventually(lambda: "median device" in devices()["slow"].get("reason", ""))
        assert devices()["a"]["pace"] < 2.0
    assert carriers() == []
    assert folders() == []

"""What the dispatcher does about devices, on a simulated clock and without any process."""

import json
import random
from collections import Counter

import pytest
from chameleon_core._errors import PluginError, TargetError
from chameleon_core._measurement import FailureKind, Measurement
from chameleon_core._task import Task
from chameleon_core.plugin_api import MeasureJob, StageRef
from chameleon_runners._fleet.options import FleetOptions
from chameleon_runners._replay.readers import table_of_task
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_fleet import SimulatedFleetRunner
from structlog.testing import capture_logs

from ..replay.conftest import tasks_of, tiny_cache  # noqa: TID252 - tests are no package

OPTIONS = FleetOptions(workers=8, run_floor=2.0, run_timeout=2.0)


_FAILURES = [
    FailureKind.WRONG_OUTPUT,
    FailureKind.RUN_ERROR,
    FailureKind.DEVICE_LOST,
    FailureKind.CRASH,
    FailureKind.RUN_TIMEOUT,
]


def right(config, _device=""):
    return Measurement(config=config, seconds=(1e-3,) * 3, build_seconds=0.1, run_seconds=0.5)


def wrong(config, kind):
    return Measurement(config=config, failure=kind, message="it failed", run_seconds=0.2)


def job(count, *, target="none", name="a"):
    arguments = {"of": name}
    task = Task(name=name, operator="simulated", arguments=arguments, target=target, flop=1.0)
    configs = [(number,) for number in range(count)]
    return MeasureJob(task=task, space=StageRef(factory="none:None"), configs=configs)


def fleet(outcome, *names, **more):
    options = more.pop("options", OPTIONS)
    return SimulatedFleetRunner(options, outcome, lambda: names, **more)


def state_of(runner, name):
    return next(d for d in runner.describe()["devices"] if d["name"] == name)


def failing_on(names, kind):
    return lambda config, device: wrong(config, kind) if device in names else right(config)


def test_all_devices_are_kept_busy():
    def took(devices):
        names = [str(number) for number in range(devices)]
        with fleet(right, *names) as runner:
            before = runner.now()
            assert all(m.ok for m in runner.measure(job(400)))
            return runner.now() - before

    assert took(8) < took(1) / 7.2


def test_all_builders_are_kept_busy_for_one_device():
    def slowly_built(config, _device):
        return Measurement(config=config, seconds=(1e-3,), build_seconds=2.0, run_seconds=0.05)

    with fleet(slowly_built, "a") as runner:
        assert all(m.ok for m in runner.measure(job(80)))
        assert runner.now() < 80 * 2.0 / OPTIONS.workers + 5.0


@pytest.mark.parametrize("kind", [*_FAILURES, FailureKind.OUT_OF_MEMORY])
def test_a_device_that_fails_whatever_it_is_given_poisons_nothing(kind):
    with fleet(failing_on({"bad"}, kind), "bad", "good", "other") as runner, capture_logs() as logs:
        kinds = list(runner.measure(job(100)))
        assert [m.message for m in kinds if not m.ok] == []
        assert len(kinds) == 100
        bad = state_of(runner, "bad")
    assert "failed here and succeeded elsewhere" in str(bad.get("reason"))
    assert any(log["event"] == "device_set_aside" and log["device"] == "bad" for log in logs)


def test_two_devices_are_enough_to_find_the_liar():
    outcome = failing_on({"liar"}, FailureKind.WRONG_OUTPUT)
    with fleet(outcome, "liar", "honest") as runner:
        assert all(m.ok for m in runner.measure(job(60)))
        assert "reason" in state_of(runner, "liar")


def test_a_device_that_is_right_again_is_taken_back():
    healed_at = 60.0
    arguments = Counter()

    def outcome(config, device):
        if device:
            arguments[device] += runner.now() > healed_at
        sick = device == "sick" and runner.now() < healed_at
        return wrong(config, FailureKind.WRONG_OUTPUT) if sick else right(config)

    with fleet(outcome, "sick", "good", "other") as runner:
        assert all(m.ok for m in runner.measure(job(1000)))
        assert "reason" not in state_of(runner, "sick")
    assert arguments["sick"] > 100


def test_wrong_outputs_are_wrong_where_devices_agree():
    def outcome(config, _device):
        return wrong(config, FailureKind.WRONG_OUTPUT) if config[0] % 5 == 0 else right(config)

    with fleet(outcome, "a", "b", "c") as runner:
        kinds = {m.config[0]: m.failure for m in runner.measure(job(50))}
        states = {device["state"] for device in runner.describe()["devices"]}
    assert all((kind is FailureKind.WRONG_OUTPUT) == (n % 5 == 0) for n, kind in kinds.items())
    assert states == {"ready"}


def test_a_candidate_right_by_luck_is_outvoted():
    def outcome(config, device):
        return right(config) if device == "b" else wrong(config, FailureKind.WRONG_OUTPUT)

    with fleet(outcome, "a", "b", "c") as runner:
        [measurement] = runner.measure(job(1))
    # It went to the devices in their order: wrong, right, and wrong again.
    assert measurement.failure is FailureKind.WRONG_OUTPUT


def test_one_server_in_two_places_is_one_witness():
    servers = {"a": "server 1", "b": "server 1", "c": "server 2"}

    def reach(device):
        return {"status": "ok", "device": servers[device]}

    outcome = failing_on({"a", "b"}, FailureKind.WRONG_OUTPUT)
    with fleet(outcome, *servers, reach=reach) as runner:
        [measurement] = runner.measure(job(1))
        assert state_of(runner, "b")["identity"] == "server 1"
    assert measurement.ok


@pytest.mark.parametrize("names", [("only",), ("a", "b"), ("a", "b", "c", "d")])
@pytest.mark.parametrize(
    ("kind", "recorded"),
    [
        (FailureKind.DEVICE_LOST, FailureKind.CRASH),
        (FailureKind.CRASH, FailureKind.CRASH),
        (FailureKind.RUN_TIMEOUT, FailureKind.RUN_TIMEOUT),
    ],
)
def test_a_kernel_that_takes_devices_with_it_is_to_blame(names, kind, recorded):
    tries = Counter()

    def outcome(config, device):
        tries[config[0]] += bool(device)
        return wrong(config, kind) if config == (3,) else right(config)

    with fleet(outcome, *names) as runner:
        kinds = {m.config[0]: m.failure for m in runner.measure(job(10))}
    assert kinds == {n: recorded if n == 3 else None for n in range(10)}
    assert tries[3] == 2


def test_recorded_tables_can_be_replayed_on_many_devices(tmp_path):
    file = tmp_path / "tiny.json"
    file.write_text(json.dumps(tiny_cache()))
    [task] = tasks_of(file)
    table = table_of_task(task)
    configs = [(x, y, 0) for x in range(4) for y in range(3)]
    work = MeasureJob(task=task, space=StageRef(factory="none:None"), configs=configs)
    with fleet(lambda config, _: table.measurement(config), "a", "b") as runner:
        kinds = {m.config: m for m in runner.measure(work)}
    assert set(kinds) == set(configs)
    for config, measurement in kinds.items():
        recorded = table.measurement(config)
        assert (measurement.failure, measurement.seconds) == (recorded.failure, recorded.seconds)


class _Reach:
    """Devices that are reached except while they are in ``down``."""

    def __init__(self, *down):
        self.down = set(down)

    def __call__(self, device):
        if device in self.down:
            return {"status": "lost", "message": "nobody answers"}
        return {"status": "ok"}


def test_devices_that_never_answer_again_are_lost_not_crashed():
    reach = _Reach()

    def outcome(config, device):
        if config == (3,) and device:
            reach.down.add(device)
            return wrong(config, FailureKind.DEVICE_LOST)
        return right(config)

    options = FleetOptions(workers=8, retries=1, patience=30.0)
    names = [str(number) for number in range(5)]
    with fleet(outcome, *names, reach=reach, options=options) as runner:
        kinds = {m.config[0]: m for m in runner.measure(job(20))}
    assert kinds[3].failure is FailureKind.DEVICE_LOST
    assert "every device" in kinds[3].message
    assert all(kinds[number].ok for number in range(20) if number != 3)


def test_the_run_waits_aloud_and_goes_on_when_a_device_is_back():
    reach = _Reach("a", "b")

    class Back:
        def __call__(self, device):
            if runner.now() > 100.0:
                reach.down.clear()
            return reach(device)

    with fleet(right, "a", "b", reach=Back()) as runner, capture_logs() as logs:
        assert all(m.ok for m in runner.measure(job(5)))
    said = [log for log in logs if log["event"] == "waiting_for_a_device"]
    assert len(said) >= 3
    assert "a: nobody answers" in said[0]["reasons"]


@pytest.mark.parametrize(
    ("names", "message"),
    [(("a", "b"), r"no device for 5\d s: a: nobody answers"), ((), "no device is known")],
)
def test_patience_ends(names, message):
    options = FleetOptions(workers=2, patience=50.0)
    with (
        fleet(right, *names, reach=_Reach(*names), options=options) as runner,
        pytest.raises(TargetError, match=message),
    ):
        list(runner.measure(job(5)))


def _refusing(*names, kind="TargetError"):
    refusal = {"status": "error", "type": kind, "message": "is an sm_75", "hint": "use sm_75"}
    return lambda device: dict(refusal) if device in names else {"status": "ok"}


def test_a_device_of_another_target_is_left_out():
    used = Counter()

    def outcome(config, device):
        used[device] += 1
        return right(config)

    with fleet(outcome, "a", "b", reach=_refusing("b")) as runner:
        assert all(m.ok for m in runner.measure(job(20)))
        assert state_of(runner, "b") == {"name": "b", "state": "excluded", "reason": "is an sm_75"}
    assert used["b"] == 0


def test_devices_all_of_another_target_end_the_run_before_the_first_measurement():
    with fleet(right, "a", "b", reach=_refusing("a", "b")) as runner:
        measurements = runner.measure(job(20))
        with pytest.raises(TargetError, match="a: is an sm_75; b: is an sm_75") as caught:
            next(measurements)
    assert caught.value.hint == "use sm_75"


def test_a_device_that_cannot_be_made_is_a_plugin_error():
    with (
        fleet(right, "a", reach=_refusing("a", kind="")) as runner,
        pytest.raises(PluginError, match="is an sm_75"),
    ):
        list(runner.measure(job(2)))


def test_devices_appear_and_vanish():
    names, used = ["a"], Counter[str]()

    def outcome(config, device):
        used[device] += 1
        if runner.now() > 30.0 and len(names) == 1:
            names[:] = ["b", "c"]
        if device == "a" and runner.now() > 60.0:
            reach.down.add("a")
            return wrong(config, FailureKind.DEVICE_LOST)
        return right(config)

    reach = _Reach()
    runner = SimulatedFleetRunner(OPTIONS, outcome, lambda: names, reach=reach)
    with runner:
        assert all(m.ok for m in runner.measure(job(1000)))
        assert [device["name"] for device in runner.describe()["devices"]] == ["b", "c"]
    assert used["b"] > 100
    assert used["c"] > 100


def test_two_places_of_one_name_are_one_device():
    with fleet(right, "a", "a", "a") as runner:
        assert all(m.ok for m in runner.measure(job(4)))
        assert len(runner.describe()["devices"]) == 1


def test_batches_keep_every_device_busy():
    with fleet(right, *map(str, range(50))) as runner:
        assert runner.batch_size == 100
    for workers, size in ((2, 8), (12, 12), (64, 16)):
        with fleet(right, "a", options=FleetOptions(workers=workers)) as runner:
            assert runner.batch_size == size


def test_a_device_is_reached_anew_for_another_target_and_when_it_was_idle_for_long():
    seen = []

    def reach(device):
        seen.append(device)
        return {"status": "ok"}

    def asked(target):
        before = len(seen)
        assert all(m.ok for m in runner.measure(job(2, target=target)))
        return len(seen) - before

    with fleet(right, "a", reach=reach) as runner:
        asked("none")
        assert asked("none") == 0
        runner.pool.wait(runner.now() + 60.0)
        assert asked("none") == 1
        assert asked("other") == 2
        asked("none")


def test_devices_that_often_fail_cost_few_good_candidates():
    def blamed(seed, devices):
        """Good candidates of sixty that failed, where a sixth of all runs fail."""
        drawn = random.Random(seed)
        kinds = [*_FAILURES, FailureKind.OUT_OF_MEMORY]

        def outcome(config, device):
            failing = device and drawn.random() < 1 / 6
            return wrong(config, drawn.choice(kinds)) if failing else right(config)

        options = FleetOptions(workers=4, retries=6, pace_tolerance=None)
        names = [str(number) for number in range(devices)]
        with fleet(outcome, *names, options=options) as runner:
            return sum(not m.ok for m in runner.measure(job(60)))

    # By chance: two of a kind, on devices of which nothing is known yet.
    assert sum(blamed(seed, devices=4) for seed in range(12)) <= 6


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    devices=st.integers(1, 6),
    rate=st.sampled_from([0.0, 0.05, 0.3, 0.9]),
    retries=st.integers(0, 3),
)
def test_every_configuration_has_exactly_one_result(seed, devices, rate, retries):
    drawn = random.Random(seed)

    def outcome(config, device):
        failing = device and drawn.random() < rate
        return wrong(config, drawn.choice(_FAILURES)) if failing else right(config)

    def reach(_device):
        there = drawn.random() >= rate / 2
        return {"status": "ok"} if there else {"status": "lost", "message": "not now"}

    options = FleetOptions(workers=4, retries=retries, patience=None)
    names = [str(number) for number in range(devices)]
    with fleet(outcome, *names, reach=reach, options=options) as runner:
        kinds = Counter(m.config for m in runner.measure(job(40)))
    assert kinds == Counter((number,) for number in range(40))

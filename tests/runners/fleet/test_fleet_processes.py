"""Fleets of real worker processes with devices that fail: nothing is lost, nothing stays."""

import os
import signal
import textwrap
import threading

import pytest
from chameleon_core._errors import PluginError, TargetError
from chameleon_core._measurement import FailureKind
from chameleon_core.plugin_api import Contender, StageRef
from chameleon_runners._fleet.device_state import DeviceRef
from chameleon_runners._fleet.options import FleetOptions
from chameleon_runners._fleet.runner import FleetRunner
from fault_devices import FaultDevice, FaultDeviceOptions, fault_device_ref
from faults import Fault, config
from marks import full

from ..conftest import (  # noqa: TID252 - tests are no package
    TASK,
    by_config,
    carriers,
    eventually,
    fault_space,
    folders,
    job,
    killing,
)
from ..faults.conftest import FLEET  # noqa: TID252

OPTIONS = {**FLEET, "workers": 1}


@pytest.fixture
def make(hangs_end_soon):
    def runner(*device_refs, **options):
        chosen = FleetOptions(**{**OPTIONS, **options})
        return FleetRunner(chosen, lambda: device_refs, kind="fake")

    yield runner
    assert carriers() == []
    assert folders() == []


def good(count, first=0):
    return [config(Fault.NONE, first + number) for number in range(count)]


def given(folder, name):
    return FaultDevice(FaultDeviceOptions(state=str(folder / name))).count()


def measure_until(condition, runner):
    """Measure good candidates until a device has taken part that may start later than another."""

    def met():
        assert all(m.ok for m in by_config(list(runner.measure(job(good(8))))).values())
        return condition()

    assert eventually(met)


def test_a_device_that_disconnects_comes_back(make, tmp_path):
    ref = fault_device_ref("only", tmp_path, rates={"disconnects": 0.2}, down=2)
    with make(ref, retries=10) as runner:
        assert all(m.ok for m in by_config(list(runner.measure(job(good(12))))).values())
    assert given(tmp_path, "only") > 12


def test_devices_are_let_go_when_the_runner_closes(make, tmp_path, monkeypatch):
    monkeypatch.setattr("chameleon_runners._fleet.device_pool._DISCONNECT_SECONDS", 240.0)
    held = [tmp_path / name / "held" for name in "ab"]
    with make(*(fault_device_ref(name, tmp_path) for name in "ab")) as runner:
        measure_until(lambda: held[0].exists() and held[1].exists(), runner)
    assert not any(path.exists() for path in held)


def test_files_cut_off_on_their_way_are_sent_again(make, tmp_path):
    device_refs = [
        fault_device_ref("bad line", tmp_path, rates={"corrupts": 1.0}),
        fault_device_ref("good line", tmp_path),
    ]
    with make(*device_refs) as runner:

        def noticed():
            devices = {device["name"]: device for device in runner.describe()["devices"]}
            return "failed here and succeeded elsewhere" in devices["bad line"].get("reason", "")

        measure_until(noticed, runner)


@pytest.mark.parametrize("devices", [1, full(2)])
def test_out_of_device_memory(make, tmp_path, devices):
    device_refs = [fault_device_ref(str(number), tmp_path) for number in range(devices)]
    with make(*device_refs) as runner:
        configs = [config(Fault.EXHAUSTS_DEVICE), *good(2)]
        measurements = by_config(list(runner.measure(job(configs))))
    assert measurements[configs[0]].failure is FailureKind.OUT_OF_MEMORY
    assert all(measurements[c].ok for c in configs[1:])


def test_all_devices_of_another_target(make, tmp_path):
    device_refs = [fault_device_ref(name, tmp_path, target="cuda -arch=sm_75") for name in "ab"]
    with make(*device_refs) as runner, pytest.raises(TargetError, match="sm_75") as caught:
        list(runner.measure(job(good(4))))
    assert "sm_75" in str(caught.value.hint)
    assert given(tmp_path, "a") == given(tmp_path, "b") == 0


def test_a_device_that_does_not_exist(make):
    ref = DeviceRef(name="a", device=StageRef(factory="no_such_module:Device"))
    with make(ref) as runner, pytest.raises(PluginError, match="no_such_module"):
        list(runner.measure(job(good(1))))


def test_devices_that_cannot_be_listed():
    def device_refs():
        raise TargetError("there is no tracker")

    with (
        pytest.raises(TargetError, match="no tracker"),
        FleetRunner(FleetOptions(**OPTIONS), device_refs, kind="fake"),
    ):
        pass
    assert carriers() == []
    assert folders() == []


_SPACE = """
    from chameleon_core.plugin_api import Builder
    from faults import FaultBuilder, FaultSpace


    class HomeBuilder(FaultBuilder):
        export = Builder.export


    class HomeSpace(FaultSpace):
        def builder(self, task, *, threads):
            return HomeBuilder(self._options)
"""


@pytest.fixture
def home_space(tmp_path, monkeypatch):
    """A space whose kernels run in the process that built them and nowhere else."""
    (tmp_path / "home_space.py").write_text(textwrap.dedent(_SPACE))
    monkeypatch.syspath_prepend(str(tmp_path))
    return StageRef(factory="home_space:HomeSpace")


def test_candidates_that_cannot_be_sent_anywhere(make, tmp_path, home_space):
    home = job(good(3))
    home = type(home)(task=home.task, space=home_space, configs=home.configs)
    with (
        make(fault_device_ref("a", tmp_path)) as runner,
        pytest.raises(PluginError, match="HomeBuilder cannot build for other devices"),
    ):
        list(runner.measure(home))


def contender(fault, name="tuned", **options):
    return Contender(name=name, stage=fault_space(**options), config=config(fault))


@pytest.mark.full
def test_contenders_meet_on_one_device(make, tmp_path, home_space):
    contenders = [
        contender(Fault.NONE, seconds=0.0002),
        contender(Fault.NONE, "slower", seconds=0.1),
        Contender(name="home", stage=home_space, config=config(Fault.NONE)),
        contender(Fault.WRONG),
        contender(Fault.BUILD_RAISES),
    ]
    device_refs = [fault_device_ref(name, tmp_path) for name in "ab"]
    with make(*device_refs, retries=1) as runner:
        fast, slow, home, wrong, broken = runner.compare(TASK, contenders)
        assert all(m.ok for m in runner.measure(job(good(3))))
    assert fast.ok
    assert slow.ok
    assert slow.cost > 5 * fast.cost
    assert home.failure is FailureKind.BUILD_ERROR
    assert "cannot build for other devices" in home.message
    assert wrong.failure is FailureKind.WRONG_OUTPUT
    assert broken.failure is FailureKind.BUILD_ERROR


@pytest.mark.full
def test_a_comparison_moves_on_when_its_device_is_lost(make, tmp_path):
    device_refs = [
        fault_device_ref("dying", tmp_path, gone_after=2, rates={}),
        fault_device_ref("solid", tmp_path, seed=1),
    ]
    with make(*device_refs) as runner:
        contenders = [contender(Fault.NONE, str(n), seconds=0.0002) for n in range(4)]
        measurements = runner.compare(TASK, contenders)
    assert [m.message for m in measurements if not m.ok] == []


@pytest.mark.parametrize("fault", [full(Fault.SEGFAULTS), Fault.DISCONNECTS, full(Fault.HANGS)])
def test_a_contender_that_takes_devices_with_it_loses(make, tmp_path, fault):
    device_refs = [fault_device_ref(name, tmp_path) for name in "ab"]
    with make(*device_refs) as runner:
        good_one, bad_one = runner.compare(TASK, [contender(Fault.NONE), contender(fault)])
    assert good_one.ok
    hung = fault is Fault.HANGS
    assert bad_one.failure is (FailureKind.RUN_TIMEOUT if hung else FailureKind.CRASH)


@pytest.mark.full
def test_killed_workers_cost_no_result(make, tmp_path):
    device_refs = [fault_device_ref(str(number), tmp_path, seconds=0.02) for number in range(3)]
    with (
        make(*device_refs, retries=20) as runner,
        killing(runner, seed=1, pause=0.2) as measured,
    ):
        measurements, kills = measured(runner.measure(job(good(30))))
    assert len(by_config(measurements)) == 30
    assert [m.message for m in measurements if not m.ok] == []
    assert kills > 0


def test_workers_killed_between_two_batches_are_replaced(make, tmp_path):
    with make(*(fault_device_ref(name, tmp_path) for name in "ab")) as runner:
        assert all(m.ok for m in runner.measure(job(good(8))))
        for process in carriers():
            os.kill(process, signal.SIGKILL)
        assert all(m.ok for m in runner.measure(job(good(8))))


def test_a_stage_that_fails_does_not_fail_the_next_one(make, tmp_path):
    with make(fault_device_ref("a", tmp_path)) as runner:
        with pytest.raises(PluginError, match="cannot be made"):
            list(runner.measure(job(good(8), opening="raises")))
        assert all(m.ok for m in runner.measure(job(good(8))))


def test_a_comparison_that_is_closed_ends(make, tmp_path, monkeypatch):
    monkeypatch.undo()  # the hang is to last
    with make(fault_device_ref("a", tmp_path), reference_timeout=900.0) as runner:
        threading.Timer(1.0, runner.close).start()
        [measurement] = runner.compare(TASK, [contender(Fault.HANGS)])
    assert "interrupted" in measurement.message


@pytest.mark.full
def test_a_device_that_hangs_while_it_is_reached_is_waited_for(make, tmp_path):
    with make(fault_device_ref("deaf", tmp_path, deaf=1)) as runner:
        assert all(m.ok for m in runner.measure(job(good(4))))
    assert given(tmp_path, "deaf") >= 4


@pytest.mark.full
def test_a_reference_that_ends_its_workers_ends_the_run_whatever_waits(make, tmp_path):
    with (
        make(fault_device_ref("a", tmp_path), workers=3) as runner,
        pytest.raises(PluginError, match="reference outputs"),
    ):
        list(runner.measure(job(good(8), reference="exits")))

"""A device behind real servers: kernels run there, and every way to lose it has a name."""

import os
import runpy
import signal
import threading
import time
from types import SimpleNamespace
from unittest.mock import Mock

import attrs
import numpy as np
import pytest
from behaviours import (
    Behaviour,
    BehaviourBuilder,
    BehaviourOptions,
    config,
)
from chameleon_core._errors import DeviceLostError, TargetError
from chameleon_core._plugins.registry import Registry
from chameleon_runners._rpc import connection, session
from chameleon_runners._rpc.addresses import Address
from chameleon_runners._rpc.device import RpcDevice
from chameleon_runners._rpc.options import RpcDeviceOptions
from structlog.testing import capture_logs

from ..conftest import eventually  # noqa: TID252 - tests are no package
from .conftest import KEY, free_servers, settle

EXPECTED = np.arange(32, dtype=np.float32) + 1.0


@pytest.fixture(scope="module")
def artifacts(task, tmp_path_factory):
    """A folder with the artifact of each behaviour."""
    builder = BehaviourBuilder(task, BehaviourOptions(seconds=0.3))
    folder = tmp_path_factory.mktemp("artifacts")
    for behaviour in (
        Behaviour.NONE,
        Behaviour.WRONG,
        Behaviour.SLEEPS,
        Behaviour.CRASHES,
        Behaviour.HANGS,
    ):
        (folder / behaviour.value).mkdir()
        builder.export(config(behaviour), folder / behaviour.value)
    return folder


@pytest.fixture
def reach(settled, monkeypatch):
    """Makes devices of the tracker, and closes them."""
    monkeypatch.setattr("chameleon_runners._rpc.device._ANSWER_SECONDS", 60.0)
    devices = []

    def make(**options):
        document = {
            "tracker": str(settled.address),
            "key": KEY,
            "connect_timeout": 240.0,
            **options,
        }
        devices.append(RpcDevice(RpcDeviceOptions(**document)))
        return devices[-1]

    yield make
    for device in devices:
        device.close()
    settle(settled)


def test_a_kernel_runs_there(reach, native, artifacts):
    device = reach()
    description = device.connect(native)
    assert description["name"] == f"{KEY}@{description['address']}"
    assert description["tvm"].startswith("0.")
    assert device.identity == description["address"]
    device.probe()
    kernel = device.load(artifacts / "none")
    assert np.array_equal(kernel.outputs()[0], EXPECTED)
    assert len(kernel.repeats(2, 3)) == 3
    assert len(kernel.repeats(2, 3, cold_bytes=1 << 20)) == 3
    assert np.array_equal(device.load(artifacts / "wrong").outputs()[0], EXPECTED + 1.0)
    assert np.array_equal(kernel.outputs()[0], EXPECTED), "kernels do not share outputs"


def test_a_library_that_cannot_be_loaded_leaves_no_file(reach, native, tmp_path, monkeypatch):
    device = reach()
    device.connect(native)
    server = device._session._session
    upload = Mock(side_effect=server.upload)
    monkeypatch.setattr(server, "upload", upload)
    broken = tmp_path / "library.so"
    broken.write_bytes(b"cut off")
    with pytest.raises(RuntimeError):
        device._session._load_library(broken)
    [uploaded] = upload.call_args_list
    with pytest.raises(RuntimeError):
        server.download(uploaded.kwargs["target"])
    device.probe()


def test_clients_of_one_process_id_upload_under_different_names(tmp_path, monkeypatch):
    monkeypatch.setattr("os.getpid", lambda: 1)  # as in any container
    library = tmp_path / "library.so"
    library.touch()
    server = Mock()
    for _ in range(2):
        client = runpy.run_path(session.__file__)["RpcSession"]
        client._load_library(SimpleNamespace(_session=server), library)
    assert len({probe_server.args for probe_server in server.load_module.call_args_list}) == 2


def test_a_library_that_stays_on_the_device_leads_to_a_warning(
    reach, native, artifacts, monkeypatch
):
    device = reach()
    device.connect(native)
    with capture_logs() as logs:
        device.load(artifacts / "none")
        assert logs == []
        server = device._session._session
        monkeypatch.setattr(server, "remove", Mock(side_effect=RuntimeError("read-only")))
        device.load(artifacts / "wrong")
    assert {(log["event"], log["problem"]) for log in logs} == {
        ("file_stays_on_device", "read-only")
    }


def test_time_is_told_where_the_kernel_runs(reach, native, artifacts):
    device = reach()
    device.connect(native)
    (seconds,) = device.load(artifacts / "sleeps").repeats(1, 1)
    assert seconds >= 0.3


def test_inputs_are_sent_once(reach, native, artifacts):
    device = reach()
    device.connect(native)
    device.load(artifacts / "none")
    buffers = device._session._loader.buffers
    sent = buffers.sent
    device.load(artifacts / "wrong")
    assert buffers.sent == sent


def test_a_crash_is_a_lost_device_that_comes_back(reach, native, artifacts):
    device = reach()
    device.connect(native)
    with pytest.raises(DeviceLostError, match="broke"):
        device.load(artifacts / "crashes").outputs()
    device.probe()
    assert np.array_equal(device.load(artifacts / "none").outputs()[0], EXPECTED)


def test_a_server_that_is_killed_is_a_lost_device(serving, reach, native, artifacts):
    device = reach()
    address = device.connect(native)["address"]
    kernel = device.load(artifacts / "none")
    (server,) = (server for server in serving.servers if str(server.address) == address)
    os.killpg(server.pid, signal.SIGKILL)
    with pytest.raises(DeviceLostError):
        kernel.outputs()
    # The other server takes over.
    device.probe()


@pytest.mark.full
def test_a_kernel_that_hangs_is_ended_by_the_server(reach, native, artifacts):
    device = reach(session_timeout=15.0)
    device.connect(native)
    with pytest.raises(TimeoutError, match="session"):
        device.load(artifacts / "hangs").outputs()
    device._options = attrs.evolve(device._options, session_timeout=240.0)
    device.probe()


def test_a_session_is_renewed_before_the_server_ends_it(reach, native, artifacts):
    device = reach(session_timeout=60.0)
    device.connect(native)
    first = device._session
    for success, renewed in [(10.0, False), (31.0, True)]:
        first._opened = time.monotonic() - success
        assert np.array_equal(device.load(artifacts / "none").outputs()[0], EXPECTED)
        assert (device._session is not first) is renewed


def test_an_idle_device_is_given_back_and_taken_again(serving, reach, native, artifacts):
    device = reach(idle_timeout=100.0)
    device.connect(native)
    assert free_servers(serving) == 1
    device._session._used -= 101.0
    assert eventually(lambda: free_servers(serving) == 2)
    assert np.array_equal(device.load(artifacts / "none").outputs()[0], EXPECTED)


def test_no_free_device_is_said_in_time(reach, native):
    for _ in range(2):
        reach().connect(native)
    with pytest.raises(DeviceLostError, match="no free device"):
        reach(connect_timeout=63.0).connect(native)


# -- what is wrong before the first measurement ----------------------------------------------


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", "aarch64"),
        ("nvidia/nvidia-h100", "no cuda device"),
    ],
)
def test_a_target_of_another_machine(reach, target, words):
    resolved = Registry.default().create("targets", "tvm").resolve(target)
    with pytest.raises(TargetError, match=words) as raised:
        reach().connect(resolved)
    assert raised.value.hint


def test_more_threads_than_the_server_has(reach, native):
    with pytest.raises(TargetError, match="1 threads, but 64"):
        reach(threads=64).connect(native)


def test_a_server_of_a_tracker_is_not_reached_by_its_address(settled, native):
    device = RpcDevice(RpcDeviceOptions(address=str(settled.servers[0].address), key=KEY))
    with pytest.raises(TargetError, match="does not answer to the key"):
        device.connect(native)


def test_an_address_of_something_else(impostor, native):
    address = impostor(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(TargetError, match="no server of TVM's RPC"):
        RpcDevice(RpcDeviceOptions(address=str(address))).connect(native)


def test_a_server_that_says_nothing(impostor, native):
    device = RpcDevice(RpcDeviceOptions(address=str(impostor(None)), connect_timeout=0.5))
    with pytest.raises(DeviceLostError, match="does not answer"):
        device.connect(native)


def test_a_session_that_is_opened_as_the_wait_ends_is_closed(monkeypatch):
    opening, closed = threading.Event(), threading.Event()

    class GivenUp(threading.Event):
        def set(self):
            opening.set()
            time.sleep(0.2)
            super().set()

    def open_late(*_, **__):
        opening.wait(60.0)
        return SimpleNamespace(get_function=lambda _: closed.set)

    parts = SimpleNamespace(Event=GivenUp, Lock=threading.Lock, Thread=threading.Thread)
    monkeypatch.setattr(connection, "threading", parts)
    monkeypatch.setattr("tvm.rpc.connect", open_late)
    with pytest.raises(DeviceLostError, match="does not answer"):
        connection.connect(Address(host="127.0.0.1", port=9), "", lifetime=60.0, deadline=0.1)
    assert closed.wait(60.0)

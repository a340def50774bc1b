"""Devices behind TVM's own RPC proxy, to which both the server and we connect."""

import contextlib
import subprocess
import sys
import time

import attrs
import psutil
import pytest
from behaviours import Behaviour, config
from chameleon_core._errors import ChameleonError, DeviceLostError
from chameleon_core.plugin_api import MeasureJob, StageRef
from chameleon_runners._rpc.addresses import Address
from chameleon_runners._rpc.device import RpcDevice
from chameleon_runners._rpc.options import RpcDeviceOptions, RpcOptions
from chameleon_runners._rpc.runner import RpcRunner
from chameleon_runners._rpc.tracker import ServerState, probe_server

from ..conftest import eventually  # noqa: TID252 - tests are no package
from .conftest import free_port

BOARD = "board"


@pytest.fixture(scope="module")
def start():
    """Starts a module of TVM's; all of its processes are ended with the tests."""
    started = []

    def run(module, *arguments):
        command = [sys.executable, "-m", f"tvm.exec.{module}", *arguments]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        started.append(subprocess.Popen(command, **quiet))

    yield run
    for process in started:
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait()
        for row in family:
            with contextlib.suppress(psutil.Error):
                row.kill()


@pytest.fixture(scope="module")
def proxy(start):
    """A proxy on this machine that nobody has registered to."""
    address = Address(host="127.0.0.1", port=free_port())
    ports = ["--port", str(address.port), "--port-end", str(address.port + 1), "--web-port", "0"]
    start("rpc_proxy", "--host", address.host, *ports)
    there = eventually(lambda: probe_server(address, timeout=0.2)[0] is not ServerState.GONE)
    assert there, "the proxy does not start"
    return address


@pytest.fixture(scope="module")
def board(start, proxy, native):
    """The proxy, with a server of the key registered to it."""
    where = ["--host", proxy.host, "--port", str(proxy.port), "--through-proxy"]
    start("rpc_server", *where, "--key", BOARD, "--silent")
    limit = time.monotonic() + 240.0
    while True:
        with contextlib.suppress(ChameleonError):
            device = RpcDevice(RpcDeviceOptions(address=str(proxy), key=BOARD, connect_timeout=1.0))
            device.connect(native)
            device.close()
            return proxy
        assert time.monotonic() < limit, "the server does not register"


@pytest.mark.long
def test_candidates_are_measured_through_a_proxy(board, task):
    options = RpcOptions(
        address=str(board), key=BOARD, workers=1, min_repeats=1, max_repeats=1, retries=1
    )
    space = StageRef(factory="behaviours:BehaviourSpace", options={"seconds": 0.01})
    configs = [config(Behaviour.NONE), config(Behaviour.WRONG), config(Behaviour.SLEEPS)]
    with RpcRunner(options) as runner:
        job = MeasureJob(task=task, space=space, configs=configs)
        measurements = {m.config: m.failure for m in runner.measure(job)}
    assert [measurements[row] is None for row in configs] == [True, False, True]


@pytest.mark.full
def test_a_key_that_no_server_of_the_proxy_has(proxy, native, monkeypatch):
    monkeypatch.setattr("chameleon_runners._rpc.device._ANSWER_SECONDS", 60.0)
    options = RpcDeviceOptions(address=str(proxy), key="nobody", connect_timeout=60.0)
    with pytest.raises(DeviceLostError, match="does not answer") as raised:
        RpcDevice(attrs.evolve(options, connect_timeout=2.0)).connect(native)
    assert "not registered there with the key 'nobody'" in str(raised.value.hint)
    # TVM's client still waits, until a server comes: the proxy has room for no other.
    with pytest.raises(DeviceLostError, match="another client already waits") as raised:
        RpcDevice(options).connect(native)
    assert "--through-proxy" in str(raised.value.hint)

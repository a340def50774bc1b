"""``chameleon serve`` and ``chameleon devices``: what they show, and that nothing stays behind."""

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from unittest.mock import Mock

import psutil
import pytest
from behaviours import (
    Behaviour,
    BehaviourBuilder,
    BehaviourOptions,
    config,
)
from chameleon_cli._main import run
from chameleon_core._errors import ExitCode, TargetError
from chameleon_runners._rpc import selftest
from chameleon_runners._rpc.addresses import Address
from chameleon_runners._rpc.supervision import RpcServerOptions, RpcServers
from chameleon_runners._rpc.tracker import probe_server, queues

from ..conftest import eventually  # noqa: TID252 - tests are no package
from .conftest import KEY, free_port, settle

COMMAND = [sys.executable, "-m", "chameleon_cli", "serve", "--port", "0", "--json"]
EVERYWHERE = "0.0.0.0"  # noqa: S104 - to see that it is warned of


@pytest.fixture
def served():
    """Starts the command; returns its process and what it serves."""
    started = []

    def start(*arguments):
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process, json.loads(process.stdout.readline())

    yield start
    for process in started:
        family = descendants(process)
        process.kill()
        process.wait()
        for row in family:
            with contextlib.suppress(psutil.Error):
                row.kill()
        for stream in (process.stdout, process.stderr):
            stream.close()


def descendants(process):
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def gone(processes):
    _, alive = psutil.wait_procs(processes, timeout=240.0)
    return not [row for row in alive if row.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_stays_behind(served, number):
    process, answer = served("--servers", "1")
    assert answer["runner"] == {"name": "rpc", "tracker": answer["tracker"], "key": "local"}
    family = descendants(process)
    assert len(family) == 2
    os.kill(process.pid, number)
    assert process.wait(timeout=240) == (0 if number != signal.SIGKILL else -signal.SIGKILL)
    assert gone(family)


def test_a_device_may_fail_without_words():
    device = Mock(round_trip=Mock(side_effect=TimeoutError))
    assert selftest._test(device, None)["message"] == "TimeoutError"


def test_addresses_of_ipv6_are_in_brackets():
    serving = RpcServers(RpcServerOptions(announce="::1"))
    shown = serving.describe()
    serving.close()
    assert all(place.startswith("[::1]:") for place in (shown["tracker"], *shown["servers"]))


@pytest.mark.full
def test_a_public_address_is_warned_of(served):
    process, answer = served("--host", EVERYWHERE, "--announce", "127.0.0.1")
    assert answer["tracker"].startswith("127.0.0.1:")
    (queue,) = queues(Address.parse(answer["tracker"]), timeout=60.0)
    assert [str(server) for server in queue.servers] == answer["servers"]
    os.kill(process.pid, signal.SIGINT)
    assert "neither passwords nor encryption" in process.communicate(timeout=240)[1]


@pytest.mark.parametrize(
    ("host", "private"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        (EVERYWHERE, False),
        ("board", False),
    ],
)
def test_what_counts_as_private(host, private):
    assert RpcServerOptions(host=host).private is private


def test_a_killed_server_is_started_again(settled):
    server = settled.servers[0]
    restarts, pid = server.restarts, server.pid
    server.kill()

    def restarted():
        settled.supervise()
        return server.restarts > restarts

    assert eventually(restarted)
    settle(settled)
    assert server.restarts == restarts + 1
    assert server.pid != pid


CLIENT = """
import sys
from pathlib import Path
from chameleon_runners._rpc.device import RpcDevice
from chameleon_runners._rpc.options import RpcDeviceOptions
tracker, key, target, artifact = sys.argv[1:]
device = RpcDevice(RpcDeviceOptions(tracker=tracker, key=key, session_timeout=600.0))
device.connect(target)
kernel = device.load(Path(artifact))
print("loaded", flush=True)
kernel.outputs()
"""


@pytest.mark.full
def test_a_kernel_whose_client_is_gone_is_ended(settled, task, native, tmp_path):
    BehaviourBuilder(task, BehaviourOptions()).export(config(Behaviour.HANGS), tmp_path)
    arguments = [str(settled.address), KEY, native, str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, *arguments], stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout.readline() == "loaded\n"
        # Long enough for the call to reach the server; sooner, there is nothing to end.
        time.sleep(0.3)
        client.kill()
    settle(settled)


def _second_of_two_ports():
    """A listening socket at a port whose predecessor is free."""
    while True:
        other = socket.create_server(("127.0.0.1", 0))
        try:
            socket.create_server(("127.0.0.1", other.getsockname()[1] - 1)).close()
        except OSError:
            other.close()
        else:
            return other


def test_a_taken_port_is_one_sentence(capsys):
    with _second_of_two_ports() as other:
        port = other.getsockname()[1]
        with pytest.raises(TargetError) as raised:
            RpcServers(RpcServerOptions(port=port))
        said = f"port {port} of 127.0.0.1 cannot be listened on: another program listens on it"
        assert str(raised.value) == said
        assert "--port 0" in raised.value.hint
        # The servers' ports follow the tracker's.
        with pytest.raises(TargetError, match=f"port {port} "):
            RpcServers(RpcServerOptions(port=port - 1))
        assert run(["serve", "--port", str(port)]) == ExitCode.DEVICE
        assert capsys.readouterr().err.splitlines()[0] == f"error: {said}"


def test_ports_beyond_the_last_one_are_said():
    with pytest.raises(TargetError, match=r"port 65536 of 127\.0\.0\.1 .* no such port"):
        RpcServers(RpcServerOptions(port=65535, servers=1))


# -- devices ---------------------------------------------------------------------------------


def test_devices_are_shown_and_tested(settled, native, capsys, monkeypatch):
    patient = functools.partial(probe_server, timeout=60.0)
    monkeypatch.setattr(
        "chameleon_runners._commands.devices.probe_server", lambda server, timeout: patient(server)
    )
    arguments = ["devices", "--tracker", str(settled.address), "--key", KEY, "--timeout", "60"]
    assert run([*arguments, "--test", "--target", "native", "--json"]) == ExitCode.OK
    (shown,) = json.loads(capsys.readouterr().out)["keys"]
    assert shown["key"] == KEY
    assert shown["free"] == 2
    assert [server["state"] for server in shown["servers"]] == ["free", "free"]
    assert {test["server"] for test in shown["tests"]} == {o["address"] for o in shown["servers"]}
    assert all(test["ok"] for test in shown["tests"])
    settle(settled)
    assert run(arguments) == ExitCode.OK
    assert f"{KEY}: 2 servers, 2 free" in capsys.readouterr().out


def test_a_failed_self_test_is_an_exit_code(settled, capsys):
    arguments = ["devices", "--tracker", str(settled.address), "--test"]
    assert run([*arguments, "--target", "nvidia/nvidia-h100"]) == ExitCode.DEVICE
    assert "no cuda device" in capsys.readouterr().out
    settle(settled)


def test_devices_of_an_unknown_key(settled, capsys):
    answer = run(["devices", "--tracker", str(settled.address), "--key", "unknown"])
    assert answer == ExitCode.DEVICE
    assert KEY in capsys.readouterr().err


def test_devices_of_no_tracker(capsys):
    address = f"127.0.0.1:{free_port()}"
    assert run(["devices", "--tracker", address]) == ExitCode.DEVICE
    assert "no tracker answers" in capsys.readouterr().err


def test_devices_of_no_address(capsys):
    assert run(["devices", "--tracker", "nonsense"]) == ExitCode.USAGE
    assert "host:port" in capsys.readouterr().err

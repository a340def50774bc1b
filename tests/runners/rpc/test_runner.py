"""The runner ``rpc`` in a pipeline: found, tuned on, and clear about what it is not told."""

import json

import pytest
from behaviours import Behaviour, config
from chameleon_cli._main import run
from chameleon_core._errors import ConfigError, DeviceLostError, ExitCode, TargetError
from chameleon_core._measurement import FailureKind
from chameleon_core.plugin_api import MeasureJob, StageRef
from chameleon_runners._fleet import device_pool as waiting_policy
from chameleon_runners._rpc import runner as device_refs
from chameleon_runners._rpc.addresses import Address
from chameleon_runners._rpc.options import RpcOptions
from chameleon_runners._rpc.runner import RpcRunner, TrackerDevices, device_refs_of
from chameleon_runners._rpc.tracker import Queue

from .conftest import KEY, free_port, settle

PIPELINE = """
model:
  operators:
    - dense: {{name: product, input: [16, 64], units: 64}}
target: native
explorer: random
cost_model: {{name: xgboost, rounds: 4}}
runner: {{name: rpc, tracker: "{tracker}", key: {key}, workers: 1, min_repeats: 1, max_repeats: 2,
         compare_rounds: 2}}
budget: {{measurements: 6}}
baselines: [untuned]
output: {output}
"""

EXPECTED = {
    Behaviour.NONE: None,
    Behaviour.WRONG: FailureKind.WRONG_OUTPUT,
    Behaviour.SLEEPS: None,
    Behaviour.CRASHES: FailureKind.CRASH,
    Behaviour.HANGS: FailureKind.RUN_TIMEOUT,
    Behaviour.BUILD_RAISES: FailureKind.BUILD_ERROR,
    Behaviour.INVALID: FailureKind.INVALID,
}


def pipeline(folder, tracker, key=KEY):
    file = folder / "pipeline.yaml"
    text = PIPELINE.format(tracker=tracker, key=key, output=folder / "run")
    file.write_text(text.replace("cost_model: {name: xgboost, rounds: 4}\n", ""))
    return str(file)


@pytest.mark.full
def test_a_pipeline_is_tuned_on_remote_devices(settled, tmp_path, capsys):
    assert run(["run", pipeline(tmp_path, settled.address), "--json"]) == ExitCode.OK
    (operator,) = json.loads(capsys.readouterr().out)["operators"]
    assert operator["measurements"] == 6
    assert 0 < operator["tuned_seconds"] < float("inf")
    assert operator["max_relative_error"] < 1e-5
    assert {row["name"] for row in operator["variants"]} == {"tuned", "untuned"}
    settle(settled)


@pytest.mark.full
def test_every_deed_is_a_measurement_of_its_kind(settled, task):
    options = RpcOptions(
        tracker=str(settled.address),
        key=KEY,
        workers=1,
        run_timeout=20.0,
        run_floor=20.0,
        min_repeats=1,
        max_repeats=1,
    )
    space = StageRef(factory="behaviours:BehaviourSpace", options={"seconds": 0.01})
    configs = [config(behaviour) for behaviour in Behaviour]
    with RpcRunner(options) as runner:
        job = MeasureJob(task=task, space=space, configs=configs)
        table = {m.config: m for m in runner.measure(job)}
        names = {row["name"] for row in runner.describe()["devices"]}
    assert names == {f"{KEY}#1", f"{KEY}#2"}
    assert {behaviour: table[config(behaviour)].failure for behaviour in Behaviour} == EXPECTED
    settle(settled)


# -- what it is told -------------------------------------------------------------------------


@pytest.mark.full
def test_an_unknown_key_names_those_there_are(settled, tmp_path, capsys):
    assert run(["run", pipeline(tmp_path, settled.address, key="unknown")]) == ExitCode.DEVICE
    printed = capsys.readouterr().err
    assert "no device of the key 'unknown'" in printed
    assert KEY in printed


def test_no_tracker(tmp_path, capsys):
    assert run(["run", pipeline(tmp_path, f"127.0.0.1:{free_port()}")]) == ExitCode.DEVICE
    assert "chameleon serve" in capsys.readouterr().err


@pytest.mark.full
def test_nobody_listens_at_the_address(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(waiting_policy, "_REFUSED_SECONDS", 1.0)
    address = f"127.0.0.1:{free_port()}"
    file = pipeline(tmp_path, "127.0.0.1:1")
    runner = f"runner={{name: rpc, address: '{address}', workers: 1, probe_after: 0.2}}"
    assert run(["run", file, "--set", runner]) == ExitCode.DEVICE
    waited, _, ended = capsys.readouterr().err.partition("error:")
    assert f"no server answers at {address}: Connection refused" in waited
    # It is said at once, and not only when it is too late.
    assert "chameleon serve" in waited
    assert "patience_seconds=1.0" in waited
    assert "chameleon serve" in ended


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tracker": "host:1"},
        {"tracker": "host:1", "key": "a", "address": "host:2"},
        {"address": "host"},
        {"tracker": "host", "key": "a"},
        {"tracker": "host:1", "key": "a", "session_timeout": 5.0, "run_timeout": 6.0},
    ],
)
def test_options_that_name_no_device(options):
    with pytest.raises(ConfigError) as raised:
        RpcRunner(RpcOptions(**options))
    assert raised.value.hint


def test_addresses_are_places():
    listed = device_refs_of(RpcOptions(address=("a:1", "b:2"), key="k", cache_mib=3))()
    assert [ref.name for ref in listed] == ["a:1", "b:2"]
    assert listed[1].device.options["address"] == "b:2"
    assert listed[1].device.options["key"] == "k"
    assert listed[1].device.options["cache_bytes"] == 3 << 20
    assert len(device_refs_of(RpcOptions(address="a:1"))()) == 1
    assert len(device_refs_of(RpcOptions(address=("a:1", "b:2"), devices=1))()) == 1


def queue(key, count):
    servers = tuple(Address(host="h", port=port + 1) for port in range(count))
    return Queue(key=key, servers=servers, free=count, pending=0)


@pytest.fixture
def counted(monkeypatch):
    """Places of a tracker that says what it is told to."""
    said = []
    monkeypatch.setattr(device_refs, "queues", lambda *_, **__: said[-1])
    return said, lambda **more: TrackerDevices(RpcOptions(tracker="t:1", key="k", **more))


def test_places_are_as_many_as_servers(counted):
    said, make = counted
    said.append([queue("k", 3), queue("other", 5)])
    assert [ref.name for ref in make()()] == ["k#1", "k#2", "k#3"]
    assert len(make(devices=2)()) == 2


def test_a_server_that_is_restarted_takes_no_place_away(counted):
    said, make = counted
    listing = make()
    said.append([queue("k", 3)])
    listing()
    said.append([queue("k", 1)])
    assert len(listing()) == 3
    said.append([queue("k", 4)])
    assert len(listing()) == 4


@pytest.mark.parametrize(
    ("known", "error"),
    [([], DeviceLostError), ([queue("other", 1)], TargetError), ([queue("k", 0)], DeviceLostError)],
)
def test_a_tracker_without_the_key(counted, known, error):
    said, make = counted
    said.append(known)
    with pytest.raises(error, match="no device"):
        make()()

"""Clients that call one network at once: who is called how, and what is told of it."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from chameleon_core._errors import ChameleonError, ConfigError
from chameleon_core._network_result import NetworkResult
from chameleon_networks._commands import network_times as command
from chameleon_networks._commands.bench_network import stream_numbers
from chameleon_networks._throughput import clients, comparison, model_files
from chameleon_networks._throughput.comparison import (
    ThroughputRequest,
    figures_of,
    measure_throughput,
    onnxruntime_configurations,
)
from chameleon_networks._throughput.model_files import ModelFile
from chameleon_system._cores import usable_cores
from chameleon_system._processes.stamps import TOKEN
from programs import completed

LOADER = """
import threading
gate = threading.Barrier({streams})
first = True

def load(folder, *, threads, instances):
    assert (threads, instances) == (0, {streams})

    def network(array):
        global first
        if not first:
            gate.wait(240)
        first = False
        return array + 1
    return network
"""


def _request(folder, count, **more):
    np.savez(folder / "inputs.npz", np.zeros(2, np.float32))
    request = comparison.network_request(folder, count, 0)
    return {**request, "inputs": str(folder / "inputs.npz"), "seconds": 0.0, **more}


def _program(request, environment):
    words = [sys.executable, clients.__file__, json.dumps(request)]
    return json.loads(completed(words, env=environment, timeout=240).stdout)


def test_clients_call_at_once_in_a_program_that_needs_numpy_alone(tmp_path):
    (tmp_path / "load.py").write_text(LOADER.format(streams=3))
    outputs = tmp_path / "outputs.npz"
    answer = _program(_request(tmp_path, 3), {"LANG": "C.UTF-8"})
    # But for the first call the stand-in answers nobody before all three have called.
    assert len(answer["latencies"]) == 3
    assert answer["seconds"] > 0
    assert answer["variables"] == ["LANG"], "its modules and its folder are found without any"
    assert not (tmp_path / "__pycache__").exists(), "a delivered folder stays as it is"
    (tmp_path / "load.py").write_text(LOADER.format(streams=1))
    _program(_request(tmp_path, 1, outputs=str(outputs)), {})
    with np.load(outputs) as stored:
        assert stored["arr_0"].tolist() == [1.0, 1.0]


def test_a_client_that_fails_is_told_and_nobody_waits_for_it(tmp_path):
    (tmp_path / "load.py").write_text(
        "def load(folder, **options):\n"
        "    def network(array):\n"
        "        raise RuntimeError('no memory\\nand more')\n"
        "    return network\n"
    )
    assert _program(_request(tmp_path, 2), {}) == {"error": "RuntimeError: no memory"}
    with pytest.raises(ChameleonError, match="ours failed: RuntimeError: no memory"):
        comparison.run_turn("ours", _request(tmp_path, 2))


def test_a_turn_has_the_variables_of_the_user_alone(tmp_path):
    (tmp_path / "load.py").write_text(LOADER.format(streams=1))
    theirs = set(comparison.run_turn("ours", _request(tmp_path, 1))["variables"])
    # One names the process that they end with; a C locale may become one in UTF-8.
    assert theirs - set(os.environ) <= {TOKEN, "LC_CTYPE"}


def test_figures_are_requests_a_second_and_quantiles():
    figures = figures_of({"latencies": [0.1] * 50 + [0.2] * 50, "seconds": 20.0})
    assert figures["requests_per_second"] == 5.0
    assert figures["p50_seconds"] == pytest.approx(0.15)
    assert figures["p99_seconds"] == 0.2


def test_onnxruntime_shares_its_threads_among_sessions():
    ways = onnxruntime_configurations("net.onnx", 2, 4)
    assert {name: (way["sessions"], way["threads"]) for name, way in ways.items()} == {
        "one session": (1, 4),
        "2 sessions": (2, 2),
    }
    assert list(onnxruntime_configurations("net.onnx", 1, 4)) == ["one session"]
    [*_, many] = onnxruntime_configurations("net.onnx", 2 * len(usable_cores()), 0).values()
    assert many["threads"] == 1


def test_busy_processes_end_with_those_who_need_them():
    before = set(psutil.Process().children())
    with clients.busy_processes(2):
        theirs = set(psutil.Process().children()) - before
        assert len(theirs) == 2
        # Systems may share cores among sessions.
        assert {os.getsid(process.pid) for process in theirs} == {os.getsid(0)}
    assert not any(process.is_running() for process in theirs)


def test_busy_processes_end_where_their_parent_is_killed():
    code = (
        "import time; from chameleon_networks._throughput.clients import busy_processes\n"
        "with busy_processes(1):\n    print('busy', flush=True)\n    time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"busy\n"
        [theirs] = psutil.Process(parent.pid).children()
        parent.kill()
    _, alive = psutil.wait_procs([theirs], timeout=240)
    assert not alive


def test_neighbours_are_there_during_a_turn(tmp_path, monkeypatch):
    requested = []

    @contextlib.contextmanager
    def noted(neighbours):
        requested.append(neighbours)
        yield

    (tmp_path / "load.py").write_text(LOADER.format(streams=1))
    monkeypatch.setattr(clients, "busy_processes", noted)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "load", raising=False)
    clients.run_clients(_request(tmp_path, 1, neighbours=3))
    monkeypatch.delitem(sys.modules, "load", raising=False)
    assert requested == [3]


class Stub:
    """A network that takes two numbers."""

    quantized = False

    def samples(self, rng):
        return [np.zeros(2, np.float32)]


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Ours beside stand-ins for others; nothing is started."""
    files = {
        "openvino": ModelFile(framework="openvino", precision="float32", hint="f32", path="o"),
        "openvino bfloat16": ModelFile(
            framework="openvino", precision="bfloat16", hint="bf16", path="o"
        ),
        "onnxruntime": ModelFile(framework="onnxruntime", precision="float32", hint=None, path="x"),
    }
    monkeypatch.setattr(
        comparison, "write_model_files", lambda *_: (files, {"other": "it is not there"})
    )
    monkeypatch.setattr(
        comparison, "delivered_precision", lambda *_: NetworkResult(precision="float32")
    )
    network = Stub()
    return ThroughputRequest(
        network=network,
        ours={"network": tmp_path},
        names=("openvino", "onnxruntime"),
        streams=(1, 2),
        threads=len(usable_cores()),
        rounds=3,
        seconds=1.0,
    )


def test_each_has_its_best_way_and_turns_are_interleaved(asked, monkeypatch):
    order = []

    def turn(name, request):
        order.append(name)
        assert request["threads"] in {0, 1, len(usable_cores()) // 2}
        took = 0.01 if request.get("mode") == "THROUGHPUT" or request.get("sessions") == 2 else 0.02
        precision = {"openvino": request.get("hint")}.get(request["by"])
        return {"latencies": [took] * 10, "seconds": 10 * took, "precision": precision}

    monkeypatch.setattr(comparison, "run_turn", turn)
    figures, left_out = measure_throughput(asked)
    assert left_out == {"other": "it is not there"}
    assert order[:7] == [
        "network",
        *["openvino"] * 2,
        *["openvino bfloat16"] * 2,
        "onnxruntime",
        "network",
    ]
    ways = {name: row["way"] for name, row in figures[2].items()}
    assert ways == {
        "network": "",
        "openvino": "throughput hint",
        "openvino bfloat16": "throughput hint",
        "onnxruntime": "2 sessions",
    }
    assert figures[2]["openvino bfloat16"]["precision"] == "bfloat16"
    assert figures[2]["onnxruntime"]["requests_per_second"] == pytest.approx(100.0)
    assert figures[1]["onnxruntime"]["turns"] == 3
    assert command._request_ratios(figures[1]) == pytest.approx({"float32": 0.5, "bfloat16": 0.5})


def test_one_that_fails_is_left_out_unless_it_is_ours(asked, monkeypatch):
    def turn(name, request):
        if name == "onnxruntime":
            raise ChameleonError("onnxruntime failed: it has no such operator")
        return {"latencies": [0.1], "seconds": 0.1, "precision": "f32"}

    monkeypatch.setattr(comparison, "run_turn", turn)
    figures, left_out = measure_throughput(asked)
    assert list(figures[1]) == ["network", "openvino"]
    assert left_out["onnxruntime"] == "onnxruntime failed: it has no such operator"
    assert left_out["openvino bfloat16"] == (
        "asked for bfloat16 it computes in float32 on this CPU"
    )

    def by_latency(name, request):
        if request.get("mode") == "THROUGHPUT":
            raise ChameleonError("openvino failed: it knows no such hint")
        return {"latencies": [0.1], "seconds": 0.1, "precision": request.get("hint")}

    monkeypatch.setattr(comparison, "run_turn", by_latency)
    figures, left_out = measure_throughput(asked)
    assert figures[1]["openvino"]["way"] == "latency hint", "the other way is tried, too"
    assert list(left_out) == ["other"]

    def failing(name, request):
        raise ChameleonError(f"{name} failed: it is damaged")

    monkeypatch.setattr(comparison, "run_turn", failing)
    with pytest.raises(ChameleonError, match="network failed: it is damaged"):
        measure_throughput(asked)


@pytest.mark.parametrize(
    ("options", "expected"), [((), (1,)), (("2",), (2,)), (("1,2, 4", "2"), (1, 2, 4))]
)
def test_numbers_of_clients_come_one_by_one_or_in_a_list(options, expected):
    assert stream_numbers(options) == expected


@pytest.mark.parametrize("option", ["0", "two", "1,,2", "65", "-1"])
def test_other_numbers_of_clients_are_refused(option):
    with pytest.raises(ConfigError, match="whole numbers from 1 to 64"):
        stream_numbers((option,))


def test_files_are_written_for_those_that_read_them(tiny, tmp_path):
    pytest.importorskip("openvino")
    names = ("onnxruntime", "openvino")
    files, left_out = model_files.write_model_files(
        tiny, names, ("int8", "as-it-comes"), None, tmp_path
    )
    facts = {name: (file.precision, file.hint) for name, file in files.items()}
    assert facts["onnxruntime"][0] == "float32"
    assert facts["openvino"] == ("float32", "f32")
    assert facts["openvino as it comes"] == ("as-it-comes", None)
    assert files["openvino as it comes"].path == files["openvino"].path
    assert facts["onnxruntime int8"] == ("int8", None)
    assert files["onnxruntime"].path == tiny.options.source, "an ONNX file is there already"
    assert all(Path(file.path).is_file() for file in files.values())
    assert set(facts) | set(left_out) >= {"openvino int8"}


@pytest.mark.parametrize("default", ["bfloat16", "float32"])
def test_what_computes_in_another_dtype_by_default_is_called_unasked(
    tiny, tmp_path, monkeypatch, default
):
    def answer(request):
        defaults = {"onnxruntime": "float32", "openvino": default}
        return {
            (name, reduced): {"path": name, "default": defaults[name]}
            for name, reduced in request["kinds"]
        }

    monkeypatch.setattr(model_files, "_answer", answer)
    monkeypatch.setattr(model_files, "missing_packages", lambda *_: {})
    names = ("onnxruntime", "openvino")
    files, left_out = model_files.write_model_files(tiny, names, (), None, tmp_path)
    assert not left_out
    more = ["openvino as it comes"] if default == "bfloat16" else []
    assert list(files) == [*names, *more]
    assert [files[name].hint for name in more] == [None] * len(more)
    [files, _] = model_files.write_model_files(tiny, names[:1], (), None, tmp_path)
    assert list(files) == ["onnxruntime"], "openvino was not asked for"


def test_a_process_that_dies_says_its_last_words(monkeypatch):
    monkeypatch.setattr(model_files, "_MODULE", "this_module_is_not_there")
    with pytest.raises(ChameleonError, match="others ended with status 1") as raised:
        model_files._answer({})
    assert "this_module_is_not_there" in str(raised.value.hint)

"""A small network from its pipeline to the commands that take its run folder."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chameleon_cli._main import run as command_line
from chameleon_core._api.run import load_run
from chameleon_core._errors import ExitCode
from chameleon_core._loop.run import run_pipeline
from chameleon_core._pipeline.load import from_dict
from chameleon_core.api import Registry
from chameleon_core.plugin_api import CostModel
from chameleon_networks._artifact.writer import read_manifest
from chameleon_networks._frameworks.reduced_precision import default_precision
from marks import full

pytestmark = pytest.mark.usefixtures("forked_networks")


class LikesLargeIndices(CostModel):
    """Knows of every task beforehand."""

    trained = True

    def __init__(self, options: Any, context: Any) -> None: ...

    def fit(self, observations): ...

    def predict(self, configs):
        return np.asarray(configs, np.float64).sum(axis=1)


def _finished(tiny, folder, **budget):
    """The folder of a finished run, and what it says of its network."""
    pipeline = {
        "model": {"onnx": {"source": tiny.options.source, "compare": False, "in_place": False}},
        "target": "native",
        "baselines": [],
        "scheduler": {"name": "gradient", "window": 1},
        "runner": {"name": "local", "workers": 1},
        "budget": budget,
        "output": str(folder / "run"),
    }
    (folder / "p.yaml").write_text(json.dumps(pipeline))
    assert command_line(["run", str(folder / "p.yaml"), "--json"]) == 0
    network = json.loads((folder / "run" / "best.json").read_text())["network"]
    assert network["max_relative_error"] < 1e-4
    assert network["kernels"]
    assert network["delivered_seconds"] > 0
    assert network["latency_seconds"] is None, "nothing was to be compared"
    return folder / "run", network


def _compiled_again(chameleon, run, network, folder):
    finished = chameleon("compile", run, "-o", folder, "--json")
    assert finished.returncode == 0, finished.stderr
    again = json.loads(finished.stdout)["network"]
    assert again["folder"] == str(folder)
    assert again["layout"] == network["layout"], "the choice is not made again"
    assert {file.name for file in folder.iterdir()} >= {"load.py", "manifest.json"}


@pytest.fixture(scope="module")
def run(tiny, forked_networks, tmp_path_factory):
    """The folder of a finished run that measured nothing."""
    return _finished(tiny, tmp_path_factory.mktemp("network"), measurements=0)[0]


def test_a_run_is_compiled_again_elsewhere(run, chameleon, tmp_path):
    network = json.loads((run / "best.json").read_text())["network"]
    _compiled_again(chameleon, run, network, tmp_path / "net")


@pytest.mark.full
def test_a_tuned_run_has_measured_its_layout(tiny, chameleon, tmp_path):
    budget = {"measurements": 8, "batch_size": 2, "scope": "network"}
    run, network = _finished(tiny, tmp_path, **budget)
    assert network["layout"]["seconds"], "it was measured"
    assert network["layout"]["summary"] in (run / "report.html").read_text()
    _compiled_again(chameleon, run, network, tmp_path / "net")


@pytest.mark.parametrize(
    ("lost", "words"),
    [("", "the network is gone"), full("weights.bin", "weights.bin cannot be read")],
)
def test_a_finished_run_without_its_whole_network_names_the_command_that_delivers_it(
    lost, words, run, chameleon
):
    written = (run / "best.json").read_bytes()
    path = run / "network" / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert words in chameleon("status", run).stdout
    assert words in str(load_run(run).result.network.failure)
    without = chameleon("run", run.parent / "p.yaml")
    assert without.returncode == ExitCode.NO_VALID_RESULT
    assert f"chameleon compile {run}" in without.stderr
    assert "no configuration" not in without.stderr
    assert "delivered and verified" not in without.stdout
    assert chameleon("compile", run).returncode == 0
    again = chameleon("run", run.parent / "p.yaml")
    assert again.returncode == 0, again.stderr
    assert "delivered and verified" in again.stdout
    assert (run / "best.json").read_bytes() == written


def test_a_delivered_network_is_timed_against_others(run, chameleon):
    words = ("--rounds", "2", "--rivals", "onnxruntime", "--json")
    finished = chameleon("bench-network", run, *words)
    assert finished.returncode == 0, finished.stderr
    value = json.loads(finished.stdout)
    assert list(value["contenders"]) == ["network", "onnxruntime"]
    for row in value["contenders"].values():
        assert row["median_seconds"] > 0
        # Who seems hopelessly slow, as on a busy machine, has one turn, and that no interval.
        assert (row["low_seconds"] is None) == (row["turns"] == 1)
        assert 1 <= row["turns"] <= 2
        if row["turns"] > 1:
            assert 0 < row["low_seconds"] <= row["median_seconds"] <= row["high_seconds"]
    medians = [row["median_seconds"] for row in value["contenders"].values()]
    assert value["ratio"] == pytest.approx(medians[1] / medians[0])


@pytest.mark.full
def test_others_in_reduced_precision_have_their_errors(run, chameleon):
    pytest.importorskip("openvino")
    words = ("--rounds", "2", "--rivals", "onnxruntime")
    precisions = ("--precision", "int8", "--precision", "as-it-comes")
    finished = chameleon("bench-network", run, *words, *precisions, "--json")
    assert finished.returncode == 0, finished.stderr
    value = json.loads(finished.stdout)
    shown = {name: (row["precision"], row["asked"]) for name, row in value["contenders"].items()}
    assert shown["network"] == shown["onnxruntime"] == ("float32", "float32")
    assert shown["onnxruntime int8"] == ("int8", "int8")
    assert shown["openvino as it comes"][1] == "as-it-comes"
    errors = {name: row["max_relative_error"] for name, row in value["contenders"].items()}
    assert errors["network"] < 1e-4 < errors["onnxruntime int8"] < 0.5
    assert list(value["ratios"]) == ["float32", "as-it-comes", "int8"], "like comes first"
    assert value["ratio"] == value["ratios"]["float32"]
    finished = chameleon("bench-network", run, *words, "--precision", "int8")
    first, *_ = lines = finished.stdout.splitlines()
    assert first.split()[-2:] == ["precision", "error"]
    names = [line.split()[0] for line in lines[1:]]
    assert names[0] == "network"
    assert names.count("onnxruntime") == 2
    for precision in ("float32", "int8"):
        assert f"times as fast as the best of the others in {precision}" in finished.stdout


@pytest.mark.full
def test_clients_call_a_network_beside_a_busy_process(run, chameleon):
    pytest.importorskip("openvino")
    words = ("--streams", "1,2", "--neighbours", "1", "--rounds", "2", "--seconds", "0.05")
    finished = chameleon("bench-network", run, *words, "--json")
    assert finished.returncode == 0, finished.stderr
    value = json.loads(finished.stdout)
    assert list(value["streams"]) == ["1", "2"]
    others = [] if default_precision("openvino") == "float32" else ["openvino as it comes"]
    assert value["neighbours"] == 1
    for streams in value["streams"].values():
        assert list(streams["contenders"]) == ["network", "onnxruntime", "openvino", *others]
        for row in streams["contenders"].values():
            assert row["requests_per_second"] > 0
            assert 0 < row["p50_seconds"] <= row["p90_seconds"] <= row["p99_seconds"]
            assert row["turns"] == 2
        assert list(streams["ratios"]) == ["float32", *(["as-it-comes"] if others else [])]
    words = ("--rivals", "onnxruntime", "--rounds", "2", "--seconds", "0.05")
    finished = chameleon("bench-network", run, "--streams", "2", *words)
    assert finished.returncode == 0, finished.stderr
    first, header, ours, *_, ratio = finished.stdout.splitlines()
    assert first == "2 clients"
    assert header.split()[:3] == ["network", "precision", "requests/s"]
    assert ours.split()[:2] == ["network", "float32"]
    assert ratio.endswith("times as many requests a second as the best of the others in float32")


@pytest.mark.full
def test_kernels_are_timed_in_the_network_and_alone(run, chameleon):
    finished = chameleon("bench-network", run, "--profile", "--json")
    assert finished.returncode == 0, finished.stderr
    profile = json.loads(finished.stdout)
    tuned = {task["name"] for task in read_manifest(run / "network")["tasks"]}
    assert {row["name"] for row in profile["kernels"] if row["peak_share"] is not None} == tuned
    for row in profile["kernels"]:
        assert row["seconds"] > 0 < row["alone_seconds"]
    finished = chameleon("bench-network", run, "--profile")
    header, *rows, last = finished.stdout.splitlines()
    assert header.split()[-3:] == ["share", "of", "peak"]
    assert len(rows) == len(profile["kernels"])
    assert "times as long as alone" in last


def test_a_network_is_a_bundle_for_c(run, chameleon, tmp_path):
    words = ("export", run, "--to", "c", "-o", tmp_path / "net", "--name", "tiny", "--json")
    finished = chameleon(*words)
    assert finished.returncode == 0, finished.stderr
    names = {Path(file).name for file in json.loads(finished.stdout)["files"]}
    assert names == {file.name for file in (tmp_path / "net").iterdir()}
    assert names >= {"libtiny.so", "tiny.h", "main.cpp", "CMakeLists.txt", "weights.bin"}
    copy = tmp_path / "run"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("network"))
    finished = chameleon("export", copy, "--to", "c", "-o", tmp_path / "other")
    assert finished.returncode == 2
    assert "has no delivered network" in finished.stderr


def test_a_network_is_a_file_for_onnx_runtime(run, chameleon, tmp_path):
    words = ("export", run, "--to", "onnxruntime", "-o", tmp_path / "net", "--json")
    finished = chameleon(*words)
    assert finished.returncode == 0, finished.stderr
    files = [Path(file) for file in json.loads(finished.stdout)["files"]]
    assert all(map(Path.is_file, files))
    assert files[0] == tmp_path / "net" / "model.onnx"
    for more in (("--name", "tiny"), ("--task", "conv0")):
        assert chameleon(*words, *more).returncode == 2


@pytest.mark.full
def test_what_was_predicted_is_compiled_again(tiny, plugin, chameleon, tmp_path):
    document = {
        "model": {"onnx": {"source": tiny.options.source, "compare": False, "in_place": False}},
        "cost_model": "odd",
        "target": "native",
        "baselines": [],
        "budget": {"measurements": 0},
        "output": str(tmp_path / "run"),
    }
    plugins = [plugin("cost_models", LikesLargeIndices)]
    registry = Registry.from_plugins(plugins, with_installed=True)
    result = run_pipeline(from_dict(document, registry=registry))
    kernels = {task.name: task.kernel for task in result.network.unmeasured}
    assert set(kernels.values()) == {"configuration predicted to be best"}
    reasons = {task.because for task in result.network.unmeasured}
    assert reasons == {"not measured, as the budget says"}
    again = chameleon("compile", result.folder, "--output", tmp_path / "again", "--json")
    assert again.returncode == 0, again.stderr
    rows = json.loads(again.stdout)["network"]["unmeasured"]
    assert {row["name"]: row["kernel"] for row in rows} == kernels
    assert {row["because"] for row in rows} == reasons
    first, second = (
        {task["name"]: task["config"] for task in json.loads(manifest.read_text())["tasks"]}
        for manifest in (
            result.folder / "network" / "manifest.json",
            tmp_path / "again" / "manifest.json",
        )
    )
    assert first == second
    finished = chameleon("export", tmp_path / "run", "--to", "c", "-o", tmp_path / "net")
    assert finished.returncode == 0, finished.stderr


UNTIMED = (
    (lambda _: None, ("--rivals", "tensorflow"), "tensorflow cannot run this network"),
    (lambda run: shutil.rmtree(run / "network"), (), "no network was delivered"),
    (lambda _: None, ("--calibrate", "data.py:batches"), "--precision names none"),
    (lambda _: None, ("--streams", "many"), "--streams takes whole numbers from 1 to 64"),
    (lambda _: None, ("--streams", "2", "--rivals", "torch"), "torch cannot be compared with"),
    (
        lambda _: None,
        ("--rivals", "onnxruntime", "--precision", "int8", "--calibrate", "no.py:batches"),
        "no.py",
    ),
)


def test_what_cannot_be_timed_is_said(run, chameleon, tmp_path):
    for number, (prepare, words, said) in enumerate(UNTIMED):
        copy = tmp_path / str(number)
        shutil.copytree(run, copy)
        prepare(copy)
        finished = chameleon("bench-network", copy, *words)
        assert finished.returncode == 2
        assert said in finished.stderr


def test_a_folder_that_is_no_run_is_refused(chameleon, tmp_path):
    for command in ("compile", "bench-network"):
        finished = chameleon(command, tmp_path)
        assert finished.returncode == 2
        assert str(tmp_path) in finished.stderr


@pytest.mark.long
def test_a_network_in_buckets_is_run_compiled_and_timed(chameleon, tmp_path):
    shapes = {"image": [{"buckets": [1, 3], "pad": 0, "name": "batch"}, 3, 16, 16]}
    pipeline = {
        "model": {"builtin": {"network": "resnet_small", "compare": False, "shapes": shapes}},
        "target": "native",
        "baselines": [],
        "scheduler": {"name": "gradient", "window": 1},
        "budget": {"measurements": 16, "batch_size": 1, "scope": "network"},
        "output": str(tmp_path / "run"),
    }
    (tmp_path / "p.yaml").write_text(json.dumps(pipeline))
    finished = chameleon("run", tmp_path / "p.yaml", "--json")
    assert finished.returncode == 0, finished.stderr
    ran = json.loads(finished.stdout)["network"]
    assert [row["name"] for row in ran["buckets"]] == ["batch=1", "batch=3"]
    names = {row["name"] for row in json.loads(finished.stdout)["operators"]}
    assert {row["name"] for row in ran["kernels"] if row["tuned"]} <= names
    assert "<td>batch=3</td>" in (tmp_path / "run" / "report.html").read_text()
    finished = chameleon("compile", tmp_path / "run", "-o", tmp_path / "net", "--json")
    assert finished.returncode == 0, finished.stderr
    again = json.loads(finished.stdout)["network"]
    assert again["layout"] == ran["layout"]
    tuned = [{row["name"] for row in values["kernels"] if row["tuned"]} for values in (ran, again)]
    assert tuned[0] == tuned[1]
    words = ("--rounds", "2", "--rivals", "torch", "--json")
    finished = chameleon("bench-network", tmp_path / "run", *words)
    assert finished.returncode == 0, finished.stderr
    buckets = json.loads(finished.stdout)["buckets"]
    assert [list(row["contenders"]) for row in buckets.values()] == [["network", "torch"]] * 2

"""Networks in buckets of shapes have kernels for further levels of CPUs, also in C."""

import runpy
import shutil
import sys
import zipfile
from pathlib import Path

import attrs
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from chameleon_core._errors import ExitCode
from chameleon_core.plugin_api import ChameleonError, ConfigError
from chameleon_networks._artifact.load import check_cpu, check_files, flat, load
from chameleon_networks._artifact.writer import read_manifest
from chameleon_networks._delivery import levels
from chameleon_networks._export.bundles import write_network_bundle, write_onnx_file, write_wheel
from chameleon_networks._frontends.bucketed import make_frontend
from chameleon_networks._importers.options import TorchOptions
from chameleon_networks._shapes import Buckets
from chameleon_system._processor import own_architecture
from chameleon_system.api import user_cache_folder
from chameleon_tvm.api import host_features
from programs import completed

from ..precision.conftest import NoTrials  # noqa: TID252 - what measures nothing

pytestmark = [
    pytest.mark.skipif(own_architecture() != "x86_64", reason="the levels are of x86 CPUs"),
    pytest.mark.usefixtures("forked_networks"),
]

EMULATOR = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
LEVELS = ("x86-64-v3", "x86-64-v2")
LONGEST = 70
SIZES = (1, 7, 20, 33, LONGEST)

NETWORK = """
import torch


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.halved, self.last = torch.nn.Conv1d(8, 16, 3, 2, 1), torch.nn.Linear(16, 5)

    def forward(self, x, scale):
        y = torch.relu(self.halved(x * scale[:, None])).transpose(1, 2)
        return {"rows": self.last(y), "mean": y.mean(1)}


def make():
    torch.manual_seed(0)
    return Small(), {"x": torch.randn(1, 8, 40), "scale": torch.ones(1, 40)}


def wide():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU()), (torch.randn(4, 64),)
"""

RUN = """
import logging, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from network import load
logging.basicConfig()
network = load()
for number, file in enumerate(sys.argv[2:]):
    with np.load(file) as inputs:
        np.savez(file.replace("inputs", "outputs"), **network(**inputs))
        plan = network.plan(**inputs)
print(network.level, plan, sep=";")
"""


def _source(folder, function, **shapes):
    (folder / "net.py").write_text(NETWORK)
    options = TorchOptions(
        source=f"{folder}/net.py:{function}", shapes=shapes, compare=False, levels=LEVELS
    )
    return make_frontend(options)


def _open(folder, target):
    length = Buckets(range=(1, LONGEST), sizes=(20, LONGEST), name="length")
    source = _source(folder, "make", x=(1, 8, length), scale=(1, length))
    source.decide(NoTrials(target))
    return source


def _closed(folder):
    return _source(folder, "wide", input=(Buckets(buckets=(2, 12), name="rows"), 64))


@pytest.fixture(scope="module")
def result(delivery_into, target, tmp_path_factory):
    """The result of a network with an open length."""
    folder = tmp_path_factory.mktemp("open")
    source = _open(folder, target)
    result = source.deliver(delivery_into(source, folder / "network", guessed=True))
    assert result.failure is None
    return result


@pytest.fixture(scope="module")
def network(result):
    return Path(result.folder)


@pytest.fixture(scope="module")
def closed(delivery_into, tmp_path_factory):
    """The folder of a network in buckets that pad nothing."""
    folder = tmp_path_factory.mktemp("closed")
    source = _closed(folder)
    assert source.deliver(delivery_into(source, folder / "network")).failure is None
    return folder / "network"


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    """Inputs of each size, with the outputs of torch."""
    folder = tmp_path_factory.mktemp("nets")
    (folder / "net.py").write_text(NETWORK)
    names: dict = {}
    exec((folder / "net.py").read_text(), names)  # noqa: S102 - the text above
    model, _ = names["make"]()
    rng = np.random.default_rng(0)
    cases = []
    for size in SIZES:
        shapes = {"x": (1, 8, size), "scale": (1, size)}
        inputs = {name: rng.standard_normal(s, np.float32) for name, s in shapes.items()}
        with torch.no_grad():
            outputs = model(*map(torch.from_numpy, inputs.values()))
        cases.append((inputs, {name: array.numpy() for name, array in outputs.items()}))
    return cases


@pytest.fixture(autouse=True)
def environment(tmp_path, monkeypatch):
    """Sets variables of the environment, of which one names an empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return monkeypatch


FEATURES = {"x86-64-v2": {"sse4.2"}, "x86-64-v3": {"avx2", "fma", "bmi2", "movbe"}}


def _skip_unless_here(level):
    if not host_features() >= FEATURES[level]:
        pytest.skip(f"this CPU is no {level}")


def _check(outputs, wanted):
    assert outputs.keys() == wanted.keys()
    for name, array in wanted.items():
        assert outputs[name].shape == array.shape
        assert np.abs(outputs[name] - array).max() < 1e-5 * np.abs(array).max()


@pytest.mark.full
def test_each_bucket_of_an_open_length_has_each_level(result, network):
    manifest = read_manifest(network)
    names = [row["name"] for row in manifest["levels"]]
    assert names[1:] == [*LEVELS]
    for bucket in manifest["buckets"]:
        rows = read_manifest(network / bucket["folder"])["levels"]
        assert [row["name"] for row in rows] == names
    assert [file.parent for file in network.rglob("weights.bin")] == [network]
    for level in LEVELS:
        assert f"{level}: " in result.levels
    check_files(network)
    check_cpu(network)


@pytest.mark.full
def test_the_tuned_kernels_run_where_they_can(network, cases, caplog):
    with load(network) as loaded:
        assert loaded.level == ""
        assert loaded.plan(**cases[2][0]) == "bucket length=20 is run as it is"
        for inputs, wanted in cases:
            _check(loaded(**inputs), wanted)
    assert not caplog.records


@pytest.mark.full
@pytest.mark.parametrize("level", LEVELS)
def test_a_level_computes_calls_of_any_size(network, cases, level, environment):
    _skip_unless_here(level)
    environment.setenv("NETWORK_LEVEL", level)
    with load(network) as loaded:
        assert loaded.level == level
        plan = "length 7 is padded to 20, of which 7 are computed"
        assert loaded.plan(**cases[1][0]) == plan
        for inputs, wanted in cases:
            _check(loaded(**inputs), wanted)
    # All buckets read the packed weights of one file.
    assert len([*(user_cache_folder() / "weights").iterdir()]) == 1


def _emulated(cpu, folder, cases, tmp_path):
    if EMULATOR is None:
        pytest.skip("there is no qemu-x86_64 (Debian's package qemu-user-static)")
    files = [tmp_path / f"inputs-{number}.npz" for number in range(len(cases))]
    for file, (inputs, _) in zip(files, cases, strict=True):
        np.savez(file, **inputs)
    done = completed([EMULATOR, "-cpu", cpu, sys.executable, "-c", RUN, folder.parent, *files])
    for number, (_, wanted) in enumerate(cases):
        with np.load(tmp_path / f"outputs-{number}.npz") as outputs:
            _check(dict(outputs), wanted)
    return done


@pytest.mark.full
@pytest.mark.parametrize(("cpu", "level"), [("Nehalem", "x86-64-v2"), ("Haswell", "x86-64-v3")])
def test_an_emulated_cpu_runs_its_level(network, cases, cpu, level, tmp_path):
    done = _emulated(cpu, network, cases, tmp_path)
    assert done.stdout.strip() == f"{level};bucket length=70 is run as it is"
    assert f"length=70 runs its kernels for {level}, because this CPU lacks" in done.stderr


@pytest.mark.full
def test_a_cpu_of_no_level_is_refused_at_loading(network, environment):
    environment.setenv("NETWORK_LEVEL", "x86-64-v4")
    words = "NETWORK_LEVEL is 'x86-64-v4', and the levels are .*, x86-64-v2"
    with pytest.raises(RuntimeError, match=words):
        load(network)
    with pytest.raises(ImportError, match=words):
        check_cpu(network)


@pytest.mark.full
def test_wrong_parts_of_a_level_are_not_delivered(delivery_into, target, tmp_path, monkeypatch):
    write = levels.write_other_kernels

    def whole(folder, graph, *arguments):
        """Kernels that compute the padding as well, which the mean reads."""
        write(folder, attrs.evolve(graph, dimension=None), *arguments)

    monkeypatch.setattr(levels, "write_other_kernels", whole)
    source = _open(tmp_path, target)
    result = source.deliver(delivery_into(source, tmp_path / "network", guessed=True))
    assert result.failure is None
    assert "no bucket has x86-64-v2, since padding changes the answers" in result.levels
    assert "levels" not in read_manifest(tmp_path / "network")
    assert not [*(tmp_path / "network").rglob("x86-64-v*")]
    with load(tmp_path / "network") as loaded:
        assert loaded.level == ""


@pytest.mark.full
def test_a_wheel_names_the_features_of_the_lowest_level(network, tmp_path):
    [wheel] = write_wheel(network, tmp_path, "net", "1.0").files
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith("METADATA")]
        text = archive.read(metadata).decode()
    assert "The CPU must have: popcnt, sse, sse2, sse3, sse4.1, sse4.2, ssse3." in text


@pytest.mark.full
def test_each_bucket_has_each_level_if_calls_compute_all_of_it(closed, environment):
    buckets = read_manifest(closed)["buckets"]
    for bucket in buckets:
        assert len(read_manifest(closed / bucket["folder"])["levels"]) == 3
    assert [file.parent for file in closed.rglob("weights.bin")] == [closed]
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((rows, 64), np.float32) for rows in (2, 12)]
    with load(closed) as loaded:
        wanted = list(map(loaded, batches))
    for level in LEVELS:
        _skip_unless_here(level)
        environment.setenv("NETWORK_LEVEL", level)
        with load(closed) as loaded:
            assert loaded.level == level
            for batch, outputs in zip(batches, wanted, strict=True):
                assert np.abs(loaded(batch) - outputs).max() < 1e-5 * np.abs(outputs).max()


@pytest.mark.full
def test_a_level_that_fails_in_one_bucket_is_in_none(delivery_into, tmp_path, monkeypatch):
    add = levels._add

    def failing(steps, folder, name, *rest):
        if name == "x86-64-v2" and steps.settled.network.bucket.name == "rows=12":
            raise ChameleonError("its outputs are wrong")
        return add(steps, folder, name, *rest)

    monkeypatch.setattr(levels, "_add", failing)
    source = _closed(tmp_path)
    result = source.deliver(delivery_into(source, tmp_path / "network"))
    assert result.failure is None
    assert result.levels.endswith(
        "; no bucket has x86-64-v2, since one of them has no such library"
    )
    assert {folder.name for folder in (tmp_path / "network").rglob("x86-64-v*")} == {"x86-64-v3"}
    assert len(read_manifest(tmp_path / "network")["levels"]) == 2
    check_files(tmp_path / "network")


def _example(bundle):
    """The command of a bundle's example program."""
    links = ("-std=c++17", "-L.", "-lnet", "-Wl,-rpath,$ORIGIN", "-o", "example")
    completed([shutil.which("g++") or "c++", "main.cpp", *links], cwd=bundle)
    return ("./example", "weights.bin")


@pytest.mark.full
def test_a_bundle_for_c_holds_the_level_that_is_asked_for(network, cases, tmp_path, environment):
    _skip_unless_here("x86-64-v2")
    exported = write_network_bundle(network, tmp_path / "net", None, "x86-64-v2")
    assert not exported.notes
    manifest = read_manifest(tmp_path / "net")
    assert manifest["target"]["mcpu"] == "x86-64-v2"
    command = _example(tmp_path / "net")
    environment.setenv("NETWORK_LEVEL", "x86-64-v2")
    words = (EMULATOR, "-cpu", "Nehalem") if EMULATOR else ()
    with load(network) as loaded:
        for inputs, _ in cases:
            files = [f"{name}={tmp_path / name}.npy" for name in inputs]
            for name, array in inputs.items():
                np.save(tmp_path / f"{name}.npy", array)
            completed([*words, *command, *files], cwd=tmp_path / "net")
            for number, output in enumerate(loaded(**inputs).values()):
                made = np.load(tmp_path / "net" / f"output{number}.npy")
                assert (made.shape, made.tobytes()) == (output.shape, output.tobytes())


@pytest.mark.full
def test_a_bundle_for_c_says_which_cpus_it_runs_on(network, cases, tmp_path):
    [note] = write_network_bundle(network, tmp_path / "net", None).notes
    assert note.endswith("export another bundle with --level x86-64-v3 or x86-64-v2")
    if EMULATOR is not None and "avx512f" in host_features():
        files = []
        for name, array in cases[0][0].items():
            np.save(tmp_path / f"{name}.npy", array)
            files.append(f"{name}={tmp_path / name}.npy")
        command = [EMULATOR, "-cpu", "Nehalem", *_example(tmp_path / "net"), *files]
        assert "this CPU lacks" in completed(command, 1, cwd=tmp_path / "net").stderr


@pytest.mark.full
@pytest.mark.parametrize("folder", ["network", "closed"])
def test_a_session_of_onnx_runtime_has_each_level(folder, request, tmp_path, environment):
    _skip_unless_here("x86-64-v2")
    delivered = request.getfixturevalue(folder)
    write_onnx_file(delivered, tmp_path / "net")
    model = onnx.load(tmp_path / "net" / "model.onnx")
    [text] = [one for one in model.graph.node[0].attribute if one.name == "ep_cache_context"]
    lines = text.s.splitlines(keepends=True)
    assert [line.split(b"network.so")[0].decode() for line in lines[1:]] == [
        *("", "x86-64-v3/", "x86-64-v2/")
    ]
    text.s = lines[0] + b"".join(line for line in lines if b"x86-64-v2" in line)
    onnx.save(model, tmp_path / "net" / "model.onnx")
    options = runpy.run_path(str(tmp_path / "net" / "__init__.py"))["session_options"](threads=2)
    session = onnxruntime.InferenceSession(str(tmp_path / "net" / "model.onnx"), options)
    environment.setenv("NETWORK_LEVEL", "x86-64-v2")
    rng = np.random.default_rng(0)
    with load(delivered, threads=2) as loaded:
        for size in (2, 12):
            shapes = [
                [size if isinstance(extent, str) else extent for extent in one.shape]
                for one in session.get_inputs()
            ]
            inputs = [rng.standard_normal(shape, np.float32) for shape in shapes]
            names = [one.name for one in session.get_inputs()]
            outputs = session.run(None, dict(zip(names, inputs, strict=True)))
            for output, own in zip(outputs, flat(loaded(*inputs)), strict=True):
                assert (output.shape, output.tobytes()) == (own.shape, own.tobytes())


@pytest.mark.full
def test_a_level_that_a_network_lacks_is_not_exported(network, tmp_path):
    with pytest.raises(ConfigError, match="has no level 'x86-64-v5'; did you mean") as caught:
        write_network_bundle(network, tmp_path / "net", None, "x86-64-v5")
    assert caught.value.hint == "It has x86-64-v3, x86-64-v2."
    assert not (tmp_path / "net").exists()


@pytest.mark.parametrize("words", [("--to", "wheel"), ("--to", "c", "--task", "one")])
def test_only_a_bundle_of_a_network_has_a_level(words, command_line, tmp_path):
    output = ("-o", tmp_path / "out", "--level", "x86-64-v2")
    done = command_line("export", tmp_path, *words, *output)
    assert done.returncode == ExitCode.USAGE
    assert "--level is for a bundle for C of a network" in done.stderr

"""A model, its weights or its data that changed since a run are noticed by every command."""

import importlib
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from chameleon_cli._main import run as command_line
from chameleon_core._errors import ExitCode
from chameleon_networks import load
from chameleon_networks._artifact.load import digest_of
from chameleon_networks._artifact.sources import changed_files, sources_for
from chameleon_networks._importers.options import TorchOptions
from chameleon_networks._importers.sources import OnnxNetwork, TorchNetwork
from chameleon_networks._quantize.calibration_batches import user_samples
from chameleon_networks._source_files import watched
from safetensors.torch import save_file

from ..onnx_files import onnx_file  # noqa: TID252 - shared by folders

pytestmark = pytest.mark.usefixtures("forked_networks")

TEXT = "(float[1, 8] x) => (float[1, 8] y) { y = MatMul(x, w) }"


def _write_model(folder, number):
    onnx_file(folder / "net.onnx", TEXT, w=np.full((8, 8), number, np.float32))


def _answer(run):
    return float(load(run / "network")(np.ones((1, 8), np.float32))[0, 0])


@pytest.fixture
def commands(tmp_path):
    """Commands that read the model of ``tmp_path/run``; the first of them has run."""
    pipeline, run = tmp_path / "p.yaml", tmp_path / "run"
    model = {"onnx": {"source": str(tmp_path / "net.onnx"), "compare": False}}
    document = {"model": model, "budget": {"measurements": 0}, "output": str(run)}
    pipeline.write_text(json.dumps(document))
    _write_model(tmp_path, 1)
    commands = (
        ["run", str(pipeline)],
        ["verify", str(run)],
        ["export", str(run), "--to", "c", "-o", str(tmp_path / "c")],
        ["compile", str(run)],
    )
    assert command_line(commands[0]) == ExitCode.OK
    return commands


def test_each_command_refuses_a_changed_model(commands, tmp_path, capfd):
    _write_model(tmp_path, 2)
    for command in commands:
        capfd.readouterr()
        assert command_line(command) == ExitCode.USAGE, command
        assert f"{tmp_path / 'net.onnx'} has changed since" in capfd.readouterr().err
    assert _answer(tmp_path / "run") == 8


@pytest.mark.full
def test_a_changed_model_is_compiled_if_asked_for(commands, tmp_path):
    run = tmp_path / "run"
    _write_model(tmp_path, 1)
    assert command_line(commands[0]) == ExitCode.OK, "the same content is no change"
    _write_model(tmp_path, 2)
    assert command_line([*commands[-1], "--fresh"]) == ExitCode.OK
    assert _answer(run) == 16
    for command in commands[:-1]:
        assert command_line(command) == ExitCode.OK, command
    _write_model(tmp_path, 3)
    assert command_line([*commands[0], "--fresh"]) == ExitCode.OK
    assert _answer(run) == 24
    (tmp_path / "net.onnx").unlink()
    shutil.move(run, tmp_path / "moved")
    export = ["export", str(tmp_path / "moved"), "--to", "c", "-o", str(tmp_path / "again")]
    assert command_line(export) == ExitCode.OK, "a model that is elsewhere has not changed"


MODEL = """
import numpy as np, torch
from helper import size

def make():
    layer = torch.nn.Linear(size, 2)
    layer.bias.data[:] = torch.from_numpy(np.load({file!r}))
    return layer, (torch.ones(1, size),)

def batches():
    yield np.load({file!r})[None]
    yield np.ones((1, 2), np.float32)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A file with functions for a model and its data, which read two other files."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "helper.py").write_text("size = 2")
    np.save(tmp_path / "numbers.npy", np.zeros(2, np.float32))
    file = tmp_path / "model.py"
    file.write_text(MODEL.format(file=str(tmp_path / "numbers.npy")))
    return file


def test_a_function_has_the_files_that_it_reads(module):
    network = TorchNetwork(TorchOptions(source=f"{module}:make"))
    assert not network.sources
    network.input_names()
    names = {"model.py", "helper.py", "numbers.npy"}
    assert set(network.sources) == {str(module.with_name(name)) for name in names}


def test_a_package_that_was_imported_before_has_its_files(module, monkeypatch):
    package = module.with_name("some_networks")
    package.mkdir()
    (package / "__init__.py").touch()
    module.rename(package / "nets.py")
    importlib.import_module("some_networks.nets")
    network = TorchNetwork(TorchOptions(source="some_networks.nets:make"))
    network.input_names()
    assert {str(package / "__init__.py"), str(package / "nets.py")} <= set(network.sources)
    for name in ("some_networks", "some_networks.nets"):
        monkeypatch.delitem(sys.modules, name)


READS = """
import sys
from pathlib import Path
from chameleon_networks._source_files import watched

folder, sources = Path(sys.argv[1]), {}
with watched(sources):
    import h5py, numpy, safetensors.torch, torch
    safetensors.torch.load_file(folder / "a.safetensors")
    with safetensors.safe_open(filename=str(folder / "b.safetensors"), framework="np"):
        pass
    torch.from_file(str(folder / "c"), size=2)
    numpy.memmap(folder / "d", mode="r")
    torch.load(folder / "e", mmap=True)
    assert isinstance(h5py.File(folder / "f"), h5py.File)
print(*sorted(Path(name).name for name in sources if Path(name).parent == folder))
"""


@pytest.mark.full
def test_libraries_that_open_files_themselves(tmp_path):
    for name in ("a", "b"):
        save_file({"x": torch.ones(2)}, tmp_path / f"{name}.safetensors")
    for name in "cdf":
        (tmp_path / name).write_bytes(bytes(8))
    torch.save({"x": torch.ones(2)}, tmp_path / "e")
    library = tmp_path / "libraries"
    library.mkdir()
    text = "class File:\n    def __init__(self, name): pass"  # the package may not be installed
    (library / "h5py.py").write_text(text)
    variables = {**os.environ, "PYTHONPATH": f"{library}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-c", READS, str(tmp_path)]
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert ended.stdout.split() == ["a.safetensors", "b.safetensors", *"cdef"], ended.stderr


def test_data_have_the_files_that_they_are_read_from(module, tiny):
    text = "(float[1, 2] x) => (float[1, 2] y) { y = Relu(x) }"
    file = onnx_file(module.with_name("relu.onnx"), text)
    network = OnnxNetwork(type(tiny.options)(source=str(file)))
    assert len(list(user_samples(network, f"{module}:batches", "calibrate"))) == 2
    assert {str(module), str(module.with_name("numbers.npy")), str(file)} <= set(network.sources)


LOADER = """
import numpy as np, torch
from pathlib import Path

class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.files = sorted(Path({folder!r}).glob("*.npy"))
    def __len__(self):
        return len(self.files)
    def __getitem__(self, number):
        return np.load(self.files[number])

def batches():
    for x in torch.utils.data.DataLoader(Rows(), num_workers=1):
        yield x.numpy()
"""


def test_files_that_other_processes_read_and_new_files_of_a_folder(module, tiny, tmp_path):
    rows, folder = tmp_path / "rows", tmp_path / "run" / "network"
    for made in (rows, folder):
        made.mkdir(parents=True)
    for number in range(3):
        np.save(rows / f"{number}.npy", np.ones(2, np.float32))
    module.write_text(LOADER.format(folder=str(rows)))
    text = "(float[1, 2] x) => (float[1, 2] y) { y = Relu(x) }"
    file = onnx_file(module.with_name("relu.onnx"), text)
    network = OnnxNetwork(type(tiny.options)(source=str(file)))
    assert len(list(user_samples(network, f"{module}:batches", "calibrate"))) == 3
    pattern = str(rows / "*.npy")
    assert {pattern, *(str(rows / f"{number}.npy") for number in range(3))} <= set(network.sources)
    _write_manifest(folder, network.sources)
    (rows / "notes.txt").write_text("no data")
    assert changed_files(folder) == []
    np.save(rows / "3.npy", np.ones(2, np.float32))
    assert changed_files(folder) == [pattern]


def _write_manifest(folder, sources):
    entry = sources_for(folder, sources)
    digested = {"files": {}, **json.loads(json.dumps(entry))}
    manifest = {**digested, "digest": digest_of(digested)}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return entry


def test_the_content_counts_and_not_the_time(tmp_path):
    file, folder = tmp_path / "w.bin", tmp_path / "run" / "network"
    folder.mkdir(parents=True)
    file.write_text("a")
    with watched(sources := {}):
        file.read_text()
        (tmp_path / "written").write_text("b")
    assert list(sources) == [str(file)]
    assert list(_write_manifest(folder, sources)["sources"]) == ["../../w.bin"]
    assert changed_files(folder) == []
    file.write_text("a")
    assert changed_files(folder) == []
    file.write_text("b")
    assert changed_files(folder) == [str(file)]
    file.unlink()
    assert changed_files(folder) == []

"""Delivered folders of every kind, made once, and a process that tries them."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import attrs
import numpy as np
import pytest
from chameleon_networks._artifact.load import load
from chameleon_networks._artifact.shared_weights import share_weights
from chameleon_networks._artifact.writer import (
    manifest_of,
    write_artifact,
    write_loader,
    write_manifest,
)
from chameleon_networks._c_runtime.pack import pack_weights
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._graph.relax_utils import relax, tvm
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.options import AutoOptions
from chameleon_tvm.api import DenseSpec
from programs import completed

from ..export.conftest import operator_deliverer  # noqa: TID252 - its helpers
from ..graph.sequence.conftest import TARGET, THREADS, deliverer  # noqa: TID252 - its helpers
from ..modules import module_of  # noqa: TID252 - shared by folders

RNG = np.random.default_rng(3)
SHAPE = (1, 3, 12, 12)
FIRST, SECOND = (
    RNG.standard_normal(shape, np.float32) for shape in ((16, 3, 3, 3), (16, 16, 3, 3))
)
TABLE = RNG.standard_normal((5, 7), np.float32)


@attrs.frozen(kw_only=True, eq=False)
class Folder:
    """A delivered folder.

    Attributes:
        path: where it is.
        samples: a file of inputs, each followed by its output; or of weights, then packed ones.
        pack: whether ``pack.py`` is what is tried.
    """

    path: Path
    samples: Path
    pack: bool = False

    def copy(self, target):
        """The same elsewhere, to be damaged."""
        shutil.copytree(self.path, target)
        return attrs.evolve(self, path=target)


def _convolutions(emit, image):
    x = emit(relax.op.nn.relu(relax.op.nn.conv2d(image, relax.const(FIRST), padding=1)))
    y = emit(relax.op.add(x, relax.op.nn.conv2d(x, relax.const(SECOND), padding=1)))
    return emit(relax.op.nn.softmax(emit(relax.op.mean(y, axis=[2]))))


def _with_table(emit, x):
    return emit(relax.op.nn.softmax(emit(relax.op.matmul(x, relax.const(TABLE)))))


def _sampled(path, *inputs):
    network = load(path)
    samples = path.parent / f"{path.name}.npz"
    np.savez(samples, *(array for data in inputs for array in (data, network(data))))
    return Folder(path=path, samples=samples)


@pytest.fixture(scope="session")
def called(tmp_path_factory):
    """A network of calls, with parallel loops."""
    deliver = deliverer(tmp_path_factory.mktemp("called"))
    folder = deliver(module_of(_convolutions, (SHAPE, "float32")), guesses=True).folder
    return _sampled(folder, RNG.standard_normal(SHAPE, np.float32))


@pytest.fixture(scope="session")
def interpreted(tmp_path_factory):
    """A network that TVM's virtual machine runs."""
    folder = tmp_path_factory.mktemp("interpreted") / "network"
    module = prepare_module(module_of(_with_table, ((3, 5), "float32")), "NCHW")
    executable = relax.build(
        relax.get_pipeline("zero")(module), tvm.target.Target(json.loads(TARGET))
    )
    kernels = Kernels({}, AutoSpace(AutoOptions()), TARGET)
    write_artifact(folder, executable, manifest_of(module, [], kernels, TARGET, THREADS))
    return _sampled(folder, RNG.standard_normal((3, 5), np.float32))


@pytest.fixture(scope="session")
def bucketed(tmp_path_factory):
    """A network for two shapes, which share weights."""
    folder = tmp_path_factory.mktemp("bucketed") / "network"
    deliver = deliverer(tmp_path_factory.mktemp("buckets"))
    for rows in (2, 4):
        network = deliver(module_of(_with_table, ((rows, 5), "float32")))
        shutil.copytree(network.folder, folder / f"rows{rows}")
    share_weights(folder, [folder / f"rows{rows}" for rows in (2, 4)])
    write_loader(folder, "_buckets.py")
    buckets = [
        {
            "name": f"rows{rows}",
            "folder": f"rows{rows}",
            "inputs": [[rows, 5]],
            "outputs": [[rows, 7]],
        }
        for rows in (2, 4)
    ]
    dimension = {"name": "rows", "axes": [[0, 0, 0]], "outputs": [[0, 0, 1]]}
    manifest = {
        "inputs": [{"name": "x0", "source": "x.0", "shape": ["rows", 5], "dtype": "float32"}],
        "outputs": [{"name": "y", "source": "y", "shape": ["rows", 7], "dtype": "float32"}],
        "returns": 0,
    }
    write_manifest(folder, {**manifest, "dimensions": [dimension], "buckets": buckets})
    return _sampled(folder, *(RNG.standard_normal((rows, 5), np.float32) for rows in (2, 3, 4)))


@pytest.fixture(scope="session")
def operator(tmp_path_factory):
    """An operator with weights of its own packed."""
    delivered = operator_deliverer(tmp_path_factory.mktemp("operator"))(
        DenseSpec(input=[4, 32], units=48, bias=True)
    )
    delivered.pack()
    return _sampled(delivered.folder, *delivered.activations)


@pytest.fixture(scope="session")
def packing(operator):
    """What packs weights for the operator."""
    facts = json.loads((operator.path / "packing.json").read_text())
    constants = [RNG.standard_normal(t["shape"]).astype(t["dtype"]) for t in facts["inputs"]]
    samples = operator.samples.with_name("constants.npz")
    np.savez(samples, *constants, pack_weights(*constants, folder=operator.path))
    return Folder(path=operator.path, samples=samples, pack=True)


class Trying:
    """A process that tries folders."""

    def __init__(self, *words):
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("trying.py")), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, folder):
        """See ``trying.tried``; ``status N`` after a crash."""
        request = {"folder": str(folder.path), "samples": str(folder.samples), "pack": folder.pack}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self):
        """End it."""
        self._process.communicate(timeout=240)


@pytest.fixture(scope="session")
def trying():
    """What tries folders that need NumPy alone."""
    process = Trying()
    yield process
    process.close()


@pytest.fixture(scope="session")
def trying_tvm():
    """What tries folders that need TVM."""
    process = Trying("tvm")
    yield process
    process.close()


def in_child(action, seconds=240):
    """What an action says in a child process of a fork: ``str`` of its value, or its error.

    Args:
        action: what to do.
        seconds: until the child counts as hanging.
    """
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there may be threads
        child = os.fork()
    if child == 0:
        try:
            said = str(action())
        except BaseException as error:  # noqa: BLE001 - the answer
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode(errors="replace")[:2000])
        os._exit(0)
    os.close(write)
    with open(read, "rb") as stream:  # noqa: PTH123 - a descriptor
        ready, _, _ = select.select([stream], [], [], seconds)
        if not ready:
            os.kill(child, signal.SIGKILL)
        said = stream.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return f"status {status}" if status else said


def alone(script, *words, seconds=240):
    """A Python process of its own that runs a script: its text, or a file."""
    code = [script] if isinstance(script, Path) else ["-c", script]
    return completed([sys.executable, *code, *words], None, timeout=seconds)


@pytest.fixture(scope="module")
def scratch(called, tmp_path_factory):
    """A copy of the delivered network, for a module to damage."""
    return called.copy(tmp_path_factory.mktemp("scratch") / "copy")

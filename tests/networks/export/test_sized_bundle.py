"""A network with an open length as one library for C: the bits of Python at each size."""

import ctypes
import json
import runpy
import shutil
import threading

import numpy as np
import onnxruntime
import pytest
from chameleon_networks import load
from chameleon_networks._export.bundles import write_c_bundle, write_onnx_file
from chameleon_networks._frontends.bucketed import make_frontend
from chameleon_networks._importers.options import TorchOptions
from chameleon_networks._shapes import Buckets
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
from programs import completed

from ..precision.conftest import NoTrials  # noqa: TID252 - what measures nothing

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("forked_networks")]

CC, CXX = shutil.which("gcc") or "cc", shutil.which("g++") or "c++"
LONGEST = 70
SIZES = (1, 2, 3, 7, 19, 20, 21, 33, 64, 69, LONGEST)

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
"""


@pytest.fixture(scope="module")
def network(delivery_into, target, tmp_path_factory):
    """The delivered folder of a network with an open length."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "net.py").write_text(NETWORK)
    length = Buckets(range=(1, LONGEST), sizes=(20, LONGEST), name="length")
    shapes = {"x": (1, 8, length), "scale": (1, length)}
    source = make_frontend(
        TorchOptions(source=f"{folder}/net.py:make", shapes=shapes, compare=False)
    )
    source.decide(NoTrials(target))
    made = source.deliver(delivery_into(source, folder / "network", guessed=True))
    assert made.failure is None
    buckets = json.loads((folder / "network" / "manifest.json").read_text())["buckets"]
    assert [bucket["is_open"] for bucket in buckets] == [True] * 2
    return folder / "network"


@pytest.fixture(scope="module")
def bundle(network, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle") / "net"
    files = write_c_bundle(network, folder, "net")
    assert {file.name for file in files} == {file.name for file in folder.iterdir()}
    return folder


@pytest.fixture(scope="module")
def wanted(network):
    """Inputs of each size, and the outputs of the loader in Python."""
    rng = np.random.default_rng(0)
    with load(network, threads=2) as loaded:
        cases = {}
        for size in SIZES:
            inputs = [rng.standard_normal(s, np.float32) for s in ((1, 8, size), (1, size))]
            cases[size] = inputs, [output.copy() for output in loaded(*inputs).values()]
        return cases


def compiled(bundle, source, folder, *compiler):
    """A program that is linked with the library of a bundle."""
    program = folder / source.stem
    warned = ("-Wall", "-Wextra", "-Werror", f"-I{bundle}", f"-Wl,-rpath,{bundle}")
    completed([*compiler, *warned, str(source), str(bundle / "libnet.so"), "-o", str(program)])
    return str(program)


def test_the_example_reads_sizes_from_its_inputs(bundle, wanted, tmp_path):
    program = compiled(bundle, bundle / "main.cpp", tmp_path, CXX, "-std=c++17")
    weights = str(bundle / "weights.bin")
    for inputs, outputs in wanted.values():
        for name, array in zip(("x", "scale"), inputs, strict=True):
            np.save(tmp_path / f"{name}.npy", array)
        completed((program, weights, "scale=scale.npy", "x.npy"), cwd=tmp_path, env={})
        for number, output in enumerate(outputs):
            made = np.load(tmp_path / f"output{number}.npy")
            assert (made.shape, made.tobytes()) == (output.shape, output.tobytes())
    takes = "the network takes x (float32 [1, 8, length]), scale (float32 [1, length])"
    np.save(tmp_path / "long.npy", np.zeros((1, 8, LONGEST + 1), np.float32))
    np.save(tmp_path / "flat.npy", np.zeros(3, np.float32))
    (tmp_path / "x.raw").write_bytes(bytes(320))
    for words, said in (
        (("x.npy",), f"input scale is missing; {takes}"),
        (("flat.npy", "scale.npy"), f"flat.npy has too few axes; {takes}"),
        (("x.raw", "scale.npy"), "x.raw is no .npy file"),
        (("long.npy", "scale.npy"), "length is 71, and the network takes 1 to 70"),
        (("x.npy", "long.npy"), "long.npy has another shape, type or order than scale"),
    ):
        ran = completed((program, weights, *words), 1, cwd=tmp_path, env={})
        assert ran.stderr == f"{said}\n"


@pytest.fixture(scope="module")
def session(network, tmp_path_factory):
    """A session of ONNX Runtime with the network."""
    folder = tmp_path_factory.mktemp("session") / "net"
    write_onnx_file(network, folder)
    options = runpy.run_path(str(folder / "__init__.py"))["session_options"](threads=2)
    return onnxruntime.InferenceSession(str(folder / "model.onnx"), options)


def test_a_session_of_onnx_runtime_gets_the_bits_of_python(session, wanted):
    assert [one.shape for one in session.get_inputs()] == [[1, 8, "length"], [1, "length"]]
    assert session.get_outputs()[1].shape == [1, 16]
    for inputs, outputs in wanted.values():
        got = session.run(None, dict(zip(("x", "scale"), inputs, strict=True)))
        for output, own in zip(got, outputs, strict=True):
            assert (output.shape, output.tobytes()) == (own.shape, own.tobytes())


@pytest.mark.parametrize(
    ("lengths", "words"),
    [
        ((LONGEST + 1, LONGEST + 1), "length is 71, and the network takes 1 to 70"),
        ((20, 21), "input scale has another dtype or shape than the network takes"),
        ((0, 0), "length is 0, and the network takes 1 to 70"),
    ],
)
def test_a_session_refuses_other_sizes(session, lengths, words):
    x, scale = (np.zeros((1, 8, lengths[0]), np.float32), np.zeros((1, lengths[1]), np.float32))
    with pytest.raises(InvalidArgument, match=words):
        session.run(None, {"x": x, "scale": scale})


PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "net.h"

int main(int count, char **words) {
  static float x[8 * 70], scale[70], rows[35 * 5], mean[16], again[35 * 5];
  net_handle *handle = net_create(words[count - 1], 2);
  net_extents extents = {.length = 20};
  net_inputs inputs = {.x = x, .scale = scale};
  net_outputs outputs = {.rows = rows, .mean = mean};
  for (int i = 0; i < 8 * 70; ++i) x[i] = (float)(i % 7) - 3;
  for (int i = 0; i < 70; ++i) scale[i] = 1;
  printf("%d %d\\n", net_call_count(&extents) > 0, net_kernels(&extents) != NULL);
  for (extents.length = 5; extents.length < 70; extents.length += 32) {
    const net_tensor *input = net_input(0, &extents), *output = net_output(0, &extents);
    printf("%s %d %d, %s %d %d\\n", input->name, (int)input->shape[2], (int)input->bytes,
           output->name, (int)output->shape[1], (int)output->bytes);
    if (net_run_named(handle, &inputs, &outputs, &extents) != 0) puts(net_error());
  }
  fflush(stdout);
  outputs.rows = again;
  pid_t child = fork();
  if (child == 0) {
    extents.length -= 32;
    int failed = net_run_named(handle, &inputs, &outputs, &extents);
    for (int i = 0; i < 35 * 5; ++i) failed |= rows[i] != again[i];
    _exit(failed != 0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  extents.length = 71;
  printf("%d %d %s\\n", status, net_run_named(handle, &inputs, &outputs, &extents), net_error());
  printf("%d %s\\n", net_input(1, &extents) == NULL, net_error());
  extents.length = 5;
  inputs.scale = NULL;
  printf("%d %s\\n", net_run_named(handle, &inputs, &outputs, &extents), net_error());
  printf("%d %s\\n", net_run_named(handle, &inputs, &outputs, NULL), net_error());
  net_destroy(handle);
  return 0;
}
"""


def test_c_gives_its_sizes_by_name(bundle, tmp_path):
    (tmp_path / "use.c").write_text(PROGRAM)
    strict = ("-std=c99", "-pedantic", "-D_POSIX_C_SOURCE=200809L")
    program = compiled(bundle, tmp_path / "use.c", tmp_path, CC, *strict)
    said = "length is 71, and the network takes 1 to 70"
    assert completed((program, str(bundle / "weights.bin"))).stdout.splitlines() == [
        "1 1",
        *("x 5 160, rows 3 60", "x 37 1184, rows 19 380", "x 69 2208, rows 35 700"),
        f"0 -1 {said}",
        f"1 {said}",
        "-1 scale is NULL",
        "-1 the extents are NULL",
    ]


@pytest.mark.parametrize("instances", [1, 2])
def test_threads_call_one_handle_with_their_own_sizes(bundle, wanted, instances):
    library = ctypes.CDLL(str(bundle / "libnet.so"))
    library.net_open.restype = ctypes.c_void_p
    weights = bytes(bundle / "weights.bin")
    handle = ctypes.c_void_p(library.net_open(weights, 2, instances))
    assert handle.value is not None
    wrong = []

    def call(sizes):
        for size in 10 * sizes:
            inputs, outputs = wanted[size]
            made = [np.full_like(output, np.nan) for output in outputs]
            read, written = (
                (ctypes.c_void_p * 2)(*(array.ctypes.data for array in arrays))
                for arrays in (inputs, made)
            )
            extents = (ctypes.c_int64 * 1)(size)
            status = library.net_run(handle, read, written, extents)
            same = [a.tobytes() == b.tobytes() for a, b in zip(made, outputs, strict=True)]
            if status or not all(same):
                wrong.append(size)

    threads = [threading.Thread(target=call, args=(sizes,)) for sizes in (SIZES, SIZES[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    library.net_destroy(handle)
    assert wrong == []

"""An operator as a bundle for C: the same bits as from Python, and errors as sentences."""

import ctypes
import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from chameleon_core._errors import ChameleonError
from chameleon_networks._artifact.load import load
from chameleon_networks._artifact.writer import FORMAT, read_manifest, write_manifest
from chameleon_networks._c_runtime.linking import OBJECTS
from chameleon_networks._export.bundles import bundle_name, write_c_bundle
from chameleon_tvm.api import Conv2dSpec
from programs import completed

from .conftest import operator_deliverer

SPEC = Conv2dSpec(input=[1, 16, 24, 24], filters=32, kernel=3, padding=1, layout="NHWC")


CMAKE = shutil.which("cmake") or ""


class Library:
    """A bundle's functions, called as C calls them."""

    def __init__(self, folder, name):
        self._library = ctypes.CDLL(str(folder / f"lib{name}.so"))
        self._name = name
        self.create = self._function("create", ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)
        words = (ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
        self.open = self._function("open", ctypes.c_void_p, *words)
        self.destroy = self._function("destroy", None, ctypes.c_void_p)
        pointers = ctypes.POINTER(ctypes.c_void_p)
        self.run = self._function("run", ctypes.c_int, ctypes.c_void_p, pointers, pointers)
        self.error = self._function("error", ctypes.c_char_p)
        self.input_count = self._function("input_count", ctypes.c_int)

    def _function(self, name, result, *arguments):
        symbol = getattr(self._library, f"{self._name}_{name}")
        symbol.restype, symbol.argtypes = result, arguments
        return symbol

    def called(self, handle, inputs, output):
        """Run it on arrays."""
        read = (ctypes.c_void_p * len(inputs))(*(array.ctypes.data for array in inputs))
        return int(self.run(handle, read, (ctypes.c_void_p * 1)(output.ctypes.data)))


@pytest.fixture(scope="module")
def parallel(tmp_path_factory):
    """A delivered convolution by Winograd's algorithm, which needs workspaces and threads."""
    return operator_deliverer(tmp_path_factory.mktemp("parallel"))(
        SPEC,
        lambda values: (
            str(values.get("algorithm")).startswith("winograd")
            and values["winograd_inputs"] == "shared"
        ),
    )


@pytest.fixture
def bundled(parallel, tmp_path):
    """The functions of its bundle, the file of its weights, an input and its output."""
    write_c_bundle(parallel.folder, tmp_path / "c", "conv")
    [data] = parallel.activations
    weights = tmp_path / "c" / "weights.bin"
    return Library(tmp_path / "c", "conv"), weights, data, load(parallel.folder)(data)


def at_once(action, values):
    """Run an action on each of the values at the same time."""
    threads = [threading.Thread(target=action, args=(value,)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.full
@pytest.mark.skipif(not CMAKE, reason="cmake builds the example")
def test_the_example_gives_the_same_bits(parallel, tmp_path):
    bundle = tmp_path / "conv"
    files = write_c_bundle(parallel.folder, bundle, "conv")
    assert {file.name for file in files} == {file.name for file in bundle.iterdir()}
    for words in (("-B", "build", "."), ("--build", "build")):
        completed([CMAKE, *words], cwd=bundle)
    [data] = parallel.activations
    np.save(tmp_path / "data.npy", data)
    data.tofile(tmp_path / "data.raw")
    wanted = load(parallel.folder)(data)
    for name, threads in (("data.npy", "1"), ("data.raw", "3")):
        ran = _example(0, bundle, bundle / "weights.bin", tmp_path / name, "--threads", threads)
        assert ran.stdout.splitlines()[0] == "output0.npy"
        assert "latency 0." in ran.stdout
        output = np.load(bundle / "build" / "output0.npy")
        assert output.shape == wanted.shape
        assert output.tobytes() == wanted.tobytes()
    np.save(tmp_path / "wide.npy", data.astype(np.float64))
    ran = _example(1, bundle, bundle / "weights.bin", tmp_path / "wide.npy")
    assert "another shape, type or order than data" in ran.stderr


def _example(code, bundle, *words):
    """The example's process, which has neither Python nor TVM to find."""
    words = ("./conv_example", *words, "--runs", "3")
    return completed(words, code, cwd=bundle / "build", env={}, timeout=240)


def test_handles_run_at_the_same_time(bundled):
    library, weights, data, wanted = bundled
    errors = []

    def several(threads):
        handle = library.create(bytes(weights), threads)
        for scale in (1.0, 2.0, 1.0):
            output = np.zeros_like(wanted)
            status = library.called(handle, [data * np.float32(scale)], output)
            if status or not np.allclose(output, wanted * scale, rtol=1e-3, atol=1e-4):
                errors.append((threads, library.error()))
        errors.extend([] if np.array_equal(output, wanted) else ["other bits"])
        library.destroy(handle)

    at_once(several, (1, 2, 3))
    assert errors == []


def test_a_handle_may_be_used_by_several_threads(bundled):
    library, weights, data, wanted = bundled
    scales = np.float32([1.0, 2.0, 4.0])  # powers of two scale outputs without rounding
    for instances in (1, 2):
        handle = library.open(bytes(weights), 2, instances, None)
        wrong = []

        def busily(scale, handle=handle, wrong=wrong):
            output = np.zeros_like(wanted)
            for _ in range(100):
                status = library.called(handle, [data * scale], output)
                if status or not np.array_equal(output, wanted * scale):
                    wrong.append(float(scale))

        at_once(busily, scales)
        library.destroy(handle)
        assert wrong == []


@pytest.mark.parametrize(
    ("prepare", "threads", "said"),
    [
        (lambda file: file.unlink(), 1, b"cannot be read"),
        (lambda file: file.write_bytes(bytes(4096)), 1, b"does not hold the weights"),
        (lambda file: file.write_bytes(file.read_bytes()[:-64]), 1, b"is cut off"),
        (lambda _: None, -1, b"1 or more threads"),
    ],
)
def test_what_goes_wrong_is_said(bundled, prepare, threads, said):
    library, weights, *_ = bundled
    prepare(weights)
    assert library.create(bytes(weights), threads) is None
    assert said in library.error()
    assert library.input_count() == 1


def test_a_processor_without_the_features_is_refused(parallel, tmp_path):
    folder = shutil.copytree(parallel.folder, tmp_path / "conv")
    manifest = read_manifest(folder)
    manifest["cpu_features"].append("flight")
    write_manifest(folder, manifest)
    write_c_bundle(folder, tmp_path / "c", "conv")
    library = Library(tmp_path / "c", "conv")
    assert library.create(bytes(tmp_path / "c" / "weights.bin"), 1) is None
    assert b"this CPU lacks flight" in library.error()


@pytest.mark.parametrize(
    ("change", "said", "hint"),
    [
        ({"buckets": [], "format": 2}, "another version of Chameleon", "chameleon compile"),
        (
            {"buckets": [], "format": FORMAT, "outputs": [{"shape": ["?"]}]},
            "follow from those of the inputs in no known way",
            "from Python",
        ),
        ({"virtual_machine": "its shapes change"}, "because its shapes change", ""),
        ({"needs": ["numpy", "apache-tvm"], "format": FORMAT}, "another version", "compile"),
        ({"format": 2}, "another version of Chameleon delivered", "chameleon compile"),
    ],
)
def test_what_has_no_bundle_is_refused(tmp_path, change, said, hint):
    (tmp_path / OBJECTS).touch()
    write_manifest(tmp_path, {"needs": ["numpy"], "inputs": [], "outputs": [], **change})
    with pytest.raises(ChameleonError, match=said) as caught:
        write_c_bundle(tmp_path, tmp_path / "c", "net")
    assert hint in str(caught.value.hint)
    assert not (tmp_path / "c").exists()


def test_a_network_of_an_earlier_version_is_compiled_again(tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps({"inputs": [], "outputs": []}))
    with pytest.raises(ChameleonError, match="is of an earlier version") as caught:
        write_c_bundle(tmp_path, tmp_path / "c", "net")
    assert "chameleon compile" in str(caught.value.hint)


def test_names_are_those_of_c():
    assert bundle_name(Path("/x/res-net"), None) == "res_net"
    assert bundle_name(Path("/x/1"), "one") == "one"
    for folder, name in ((Path("/x/18"), None), (Path("/x/y"), "a-b"), (Path("/x/y"), "für")):
        with pytest.raises(ChameleonError, match="cannot be called"):
            bundle_name(folder, name)

"""A delivered network in sessions of ONNX Runtime: the same bits, and errors as sentences."""

import ctypes
import runpy
import shutil
import threading
import zlib

import numpy as np
import onnx
import onnxruntime
import pytest
from chameleon_core.plugin_api import ConfigError
from chameleon_networks._artifact.session_options import LIBRARY
from chameleon_networks._artifact.writer import read_manifest, write_manifest
from chameleon_networks._c_runtime.linking import OBJECTS, link_library
from chameleon_networks._export.bundles import write_onnx_file
from chameleon_networks._graph.relax_utils import relax
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import EPFail, InvalidArgument

from ..graph.sequence.conftest import deliverer  # noqa: TID252 - its helpers
from ..modules import module_of  # noqa: TID252 - shared by folders
from ..runtime.conftest import (  # noqa: TID252 - fixtures of its folder
    called,  # noqa: F401
    interpreted,  # noqa: F401
)

A, B = np.random.default_rng(5).standard_normal((2, 2, 3), np.float32)


@pytest.fixture(scope="module")
def exported(called, tmp_path_factory):  # noqa: F811 - the fixture
    folder = tmp_path_factory.mktemp("exported") / "net"
    write_onnx_file(called.path, folder)
    return folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The delivered folder of a network of two inputs and two outputs."""

    def build(emit, x, y):
        return emit(relax.op.subtract(x, y)), emit(relax.op.multiply(x, y))

    deliver = deliverer(tmp_path_factory.mktemp("pair"))
    return deliver(module_of(build, A.shape, A.shape)).folder


def _options(folder, **options):
    return runpy.run_path(str(folder / "__init__.py"))["session_options"](**options)


def _session(folder, **options):
    file = folder / "model.onnx"
    return onnxruntime.InferenceSession(str(file), _options(folder, **options))


def _called(session, *arrays):
    names = [one.name for one in session.get_inputs()]
    return session.run(None, dict(zip(names, arrays, strict=True)))


def _samples(called):  # noqa: F811 - no fixture here
    with np.load(called.samples) as samples:
        data, wanted = (samples[name] for name in samples.files[:2])
    return data, wanted


def test_sessions_and_threads_get_the_bits_of_the_folder(called, exported):  # noqa: F811
    data, wanted = _samples(called)
    assert {file.name for file in exported.iterdir()} == {
        *("model.onnx", "__init__.py", LIBRARY, "network.so", "weights.bin")
    }
    content = (exported / "model.onnx").read_bytes()
    sessions = [
        _session(exported, threads=2, instances=2),
        onnxruntime.InferenceSession(content, _options(exported)),
    ]
    assert sessions[0].get_providers() == ["ChameleonExecutionProvider", "CPUExecutionProvider"]
    [taken] = sessions[0].get_inputs()
    assert (taken.shape, taken.type) == (list(data.shape), "tensor(float)")
    got = []

    def several(session):
        got.extend(session.run(None, {taken.name: data})[0] for _ in range(20))

    threads = [threading.Thread(target=several, args=(session,)) for session in sessions * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 80
    assert all(np.array_equal(output, wanted) for output in got)
    with pytest.raises(InvalidArgument, match="invalid dimensions"):
        sessions[0].run(None, {taken.name: data[:, :2]})


def test_the_cpu_provider_computes_the_other_nodes(pair, tmp_path):
    write_onnx_file(pair, tmp_path)
    [node] = onnx.load(tmp_path / "model.onnx").graph.node
    nodes = [helper.make_node("Neg", ["a"], ["negative"])]
    # The network gets a constant, one tensor twice, and outputs that nobody reads.
    for first, second, outputs in (
        ("negative", "constant", ["x", "unread"]),
        ("a", "a", ["also_unread", "y"]),
    ):
        copy = onnx.NodeProto.FromString(node.SerializeToString())
        copy.input[:], copy.output[:] = [first, second], outputs
        nodes.append(copy)
    nodes.append(helper.make_node("Sum", ["x", "y"], ["sum"]))
    graph = helper.make_graph(
        nodes,
        "larger",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, A.shape)],
        [helper.make_tensor_value_info("sum", TensorProto.FLOAT, A.shape)],
        [numpy_helper.from_array(B, "constant")],
        value_info=[
            helper.make_tensor_value_info(name, TensorProto.FLOAT, A.shape)
            for name in ("x", "unread", "also_unread", "y")
        ],
    )
    versions = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), _options(tmp_path))
    [got] = session.run(None, {"a": A})
    assert np.array_equal(got, (-A - B) + A * A)


def test_a_replaced_network_is_another_one(called, pair, tmp_path):  # noqa: F811
    folder = tmp_path / "net"
    write_onnx_file(called.path, folder)
    earlier = _session(folder)
    shutil.rmtree(folder)
    write_onnx_file(pair, folder)
    assert np.array_equal(_called(_session(folder), A, B)[0], A - B)
    data, wanted = _samples(called)
    assert np.array_equal(_called(earlier, data)[0], wanted)


def _gone(file):
    """The path of a file that is no longer a hard link to a delivered one."""
    file.unlink()
    return file


def _change(file, old, new):
    content = file.read_bytes()
    assert old in content
    file.write_bytes(content.replace(old, new, 1))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "network.so").unlink(), r"network\.so cannot be read: No such"),
        (lambda folder: (folder / "weights.bin").unlink(), r"weights\.bin cannot be read: No such"),
        (
            lambda folder: _change(folder / "network.so", b"subtract", b"suBtract"),
            r"network\.so is not the library that the ONNX file was written with",
        ),
        (
            lambda folder: shutil.copyfile(folder / "model.onnx", _gone(folder / "weights.bin")),
            r"weights\.bin does not hold the weights of this library",
        ),
        (
            lambda folder: _change(folder / "model.onnx", b"chameleon 1", b"chameleon 3"),
            "another version of Chameleon wrote this ONNX file",
        ),
        (
            lambda folder: _change(folder / "model.onnx", b"chameleon 1\n", b"chameleon 1 "),
            "the ONNX file is damaged",
        ),
        (
            lambda folder: _change(folder / "model.onnx", b"network.so", b"../work.so"),
            "the ONNX file is damaged",
        ),
    ],
)
def test_damage_is_an_error_of_the_session(pair, tmp_path, damage, message):
    write_onnx_file(pair, tmp_path)
    damage(tmp_path)
    with pytest.raises(EPFail, match=message):
        _session(tmp_path)


def test_options_are_numbers(exported):
    options = onnxruntime.SessionOptions()
    _options(exported)
    own = [one for one in onnxruntime.get_ep_devices() if one.ep_name.startswith("Chameleon")]
    options.add_provider_for_devices(own, {"threads": "two"})
    with pytest.raises(EPFail, match="1 or more threads"):
        onnxruntime.InferenceSession(str(exported / "model.onnx"), options)
    with pytest.raises(EPFail, match="1 to 1024 instances"):
        _session(exported, instances=0)


def test_a_library_that_cannot_run_here_gives_way(pair, tmp_path, capfd):
    write_onnx_file(pair, tmp_path)
    manifest = read_manifest(pair)
    (tmp_path / "new").mkdir()
    # A feature that only CPUs of the years 2011 to 2016 have.
    manifest["cpu_features"] = ["fma4"]
    link_library(pair / OBJECTS, manifest, tmp_path / "new" / "network.so", "network")
    model = onnx.load(tmp_path / "model.onnx")
    [text] = [one for one in model.graph.node[0].attribute if one.name == "ep_cache_context"]
    code = f"{zlib.crc32((tmp_path / 'new' / 'network.so').read_bytes()):x}"
    own = text.s.decode().splitlines()[1]
    for lines in ([f"new/network.so {code} weights.bin -1", own], [f"new/network.so {code} w -1"]):
        text.s = "\n".join(["chameleon 1", *lines, ""]).encode()
        onnx.save(model, tmp_path / "model.onnx")
        if len(lines) > 1:
            assert np.array_equal(_called(_session(tmp_path), A, B)[0], A - B)
            assert "network.so runs, because" in capfd.readouterr().err
        else:
            with pytest.raises(EPFail, match=r"no library of the network runs here.*fma4"):
                _session(tmp_path)


def test_what_c_cannot_run_is_refused(interpreted, tmp_path):  # noqa: F811 - the fixture
    words = "virtual machine runs this network; a file for ONNX Runtime has none"
    with pytest.raises(ConfigError, match=words):
        write_onnx_file(interpreted.path, tmp_path)


def test_a_network_with_a_state_is_refused(called, tmp_path):  # noqa: F811 - the fixture
    folder = called.copy(tmp_path / "network").path
    manifest = read_manifest(folder)
    write_manifest(folder, {**manifest, "state": [manifest["inputs"][0]["name"]]})
    words = "calls change its state .*, for which a file for ONNX Runtime has no place"
    with pytest.raises(ConfigError, match=words) as caught:
        write_onnx_file(folder, tmp_path / "exported")
    assert caught.value.hint == "Load it from Python, with its load.py."


def test_an_older_onnx_runtime_is_refused(exported, tmp_path):
    said = []
    status = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)(
        lambda code, text: said.append(text.decode()) or code
    )
    table = (ctypes.c_void_p * 1)(ctypes.cast(status, ctypes.c_void_p))
    number = ctypes.create_string_buffer(b"1.22.1")
    functions = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(
        lambda version: ctypes.addressof(table) if version == 1 else None
    )
    version = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.addressof(number))
    base = (ctypes.c_void_p * 2)(*(ctypes.cast(f, ctypes.c_void_p) for f in (functions, version)))
    # Sessions of other tests may use the library itself, and this changes its state.
    copy = shutil.copyfile(exported / LIBRARY, tmp_path / LIBRARY)
    create = ctypes.CDLL(str(copy)).CreateEpFactories
    assert create(b"name", base, None, None, ctypes.c_size_t(4), None) != 0
    assert said == ["Chameleon's provider needs ONNX Runtime 1.23 or later, and this is 1.22.1"]

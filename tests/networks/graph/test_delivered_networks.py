"""Small networks end to end: compiled with random configurations, verified, loaded elsewhere."""

import json
import os

import attrs
import chameleon_networks
import numpy as np
import pytest
from chameleon_core._errors import ChameleonError
from chameleon_core._network_result import NetworkResult
from chameleon_core.plugin_api import NoOptions
from chameleon_networks._artifact import writer
from chameleon_networks._c_runtime.linking import OBJECTS, link_library
from chameleon_networks._delivery import delivery_steps
from chameleon_networks._evaluation import processes
from chameleon_networks._evaluation.verify import TOLERANCE
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._importers.options import BuiltinOptions, OnnxOptions
from chameleon_networks._importers.sources import BuiltinNetwork, OnnxNetwork
from chameleon_system._permissions import AMX, request_permission
from chameleon_system._processes.child import ChildProcess
from chameleon_tvm._device.targets import TVMTargets
from marks import full

from ..onnx_files import onnx_file  # noqa: TID252 - shared by folders

pytestmark = pytest.mark.usefixtures("forked_networks")


@pytest.mark.parametrize(
    "network",
    ["resnet_small", pytest.param("mobilenet_small", marks=pytest.mark.long), full("bert_small")],
)
def test_small_networks_are_delivered(network, frontend, delivered):
    source = frontend(network)
    delivery, result = delivered(network)
    assert result.failure is None
    assert 0 < result.max_relative_error < 1e-5 < TOLERANCE
    manifest = json.loads((delivery.folder / "manifest.json").read_text())
    assert {task["key"] for task in manifest["tasks"]} == {w.task.key for w in delivery.winners}
    assert manifest["verification"]["reference"] == "torch"
    assert manifest["layout"] == source.choice.to_json()
    assert result.layout == NetworkResult.Layout(**manifest["layout"])
    inputs = source.network.samples(np.random.default_rng(5))
    [expected] = source.network.framework("torch", 1)(inputs)
    got = chameleon_networks.load(delivery.folder)(*inputs)
    np.testing.assert_allclose(got, expected, atol=1e-5 * np.abs(expected).max())


def test_outputs_may_be_minus_infinity_as_of_a_mask(delivery_of, tmp_path):
    text = "(float[3, 8] x) => (float[3, 4] y) { a = MatMul (x, w) y = Where (m, a, low) }"
    low, m = np.array(-np.inf, np.float32), np.array([True, False, True, False])
    file = onnx_file(tmp_path / "net.onnx", text, w=np.ones((8, 4), np.float32), m=m, low=low)
    source = NetworkFrontend(OnnxNetwork(OnnxOptions(source=str(file), compare=False)))
    result = source.deliver(delivery_of(source))
    assert (result.failure, result.max_relative_error < TOLERANCE) == (None, True)


def _half():
    options = BuiltinOptions(network="resnet_small", dtype="bfloat16", compare=False)
    return NetworkFrontend(BuiltinNetwork(options))


@pytest.mark.long
def test_a_network_in_half_precision_is_compared_in_both(delivery_of):
    source = _half()
    delivery = delivery_of(source)
    result = source.deliver(delivery)
    assert result.failure is None
    assert result.reference == "torch float32"
    assert result.max_relative_error < 1e-5
    own = result.own_precision
    assert (own.dtype, own.reference) == ("bfloat16", "torch")
    assert result.max_relative_error < own.max_relative_error < own.tolerance
    manifest = json.loads((delivery.folder / "manifest.json").read_text())
    assert manifest["verification"]["own_precision"] == result.to_json()["own_precision"]
    assert [entry["dtype"] for entry in manifest["inputs"] + manifest["outputs"]] == ["float32"] * 2


@pytest.mark.long
def test_a_network_that_is_not_what_the_framework_computes_in_half_precision(
    delivery_of, monkeypatch
):
    source = _half()
    delivery = delivery_of(source)
    monkeypatch.setattr(delivery_steps, "ROUNDINGS", 1e-3)
    result = source.deliver(delivery)
    assert "compared with torch in bfloat16, its outputs are off by" in result.failure
    assert not delivery.folder.exists()


def test_it_is_told_where_the_time_goes(delivered):
    delivery, result = delivered("resnet_small")
    kernels = result.kernels
    manifest = json.loads((delivery.folder / "manifest.json").read_text())
    occurrences = {task["name"]: task["occurrences"] for task in manifest["tasks"]}
    assert {kernel.name: kernel.calls for kernel in kernels if kernel.tuned} == occurrences
    assert any(not kernel.tuned for kernel in kernels), "pooling and the like are there, too"
    seconds = [kernel.seconds for kernel in kernels]
    assert seconds == sorted(seconds, reverse=True)
    assert min(seconds) > 0


@pytest.mark.full
def test_an_onnx_file_is_delivered_without_onnxruntime(delivery_of, tmp_path, monkeypatch):
    text = """(float[1, 8, 6, 6] x) => (float[1, 16, 6, 6] y) {
        c = Conv <pads = [1, 1, 1, 1]> (x, w)
        y = Relu(c)
    }"""
    weights = np.random.default_rng(0).standard_normal((16, 8, 3, 3), np.float32)
    file = onnx_file(tmp_path / "net.onnx", text, w=weights)
    # Not in the worker either, a process that starts anew: the module of that name there raises.
    (tmp_path / "onnxruntime.py").write_text("raise ModuleNotFoundError(name='onnxruntime')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(processes, "ChildProcess", ChildProcess)
    options = OnnxOptions(source=str(file), compare=False)
    source = NetworkFrontend(OnnxNetwork(options))
    result = source.deliver(delivery_of(source))
    assert result.failure is None
    assert (result.reference, result.unverified) == ("onnx.reference", None)
    assert result.max_relative_error < 1e-5


@pytest.mark.full
def test_a_network_that_nothing_else_runs_is_delivered_but_not_verified(
    delivery_of, tmp_path, monkeypatch
):
    text = "(float[4, 8] x) => (float[4, 8] y) { y = com.microsoft.Gelu(x) }"
    file = onnx_file(tmp_path / "net.onnx", text, opsets='"" : 18, "com.microsoft" : 1')
    for name in ("onnxruntime", "openvino"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError(name='{name}')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(processes, "ChildProcess", ChildProcess)
    source = NetworkFrontend(OnnxNetwork(OnnxOptions(source=str(file), compare=False)))
    delivery = delivery_of(source)
    result = source.deliver(delivery)
    assert (result.failure, result.reference) == (None, "untuned")
    assert result.unverified.startswith("onnxruntime cannot: ")
    assert "onnx.reference cannot: " in result.unverified
    manifest = json.loads((delivery.folder / "manifest.json").read_text())
    assert manifest["verification"]["unverified"] == result.unverified


SCRIPT = """
import sys
import numpy as np
from load import load

network = load()
shape = [1, 3, 8, 8]
print(network(np.zeros(shape, "float32")).shape)
print([name for name in sys.modules if name.partition(".")[0] in {"chameleon_tvm", "tvm", "torch"}])
try:
    network(np.zeros([1, 3, 6, 8]))
except ValueError as error:
    print(error)
try:
    network()
except ValueError as error:
    print(error)
"""


def test_a_process_that_times_kernels_imports_tvm_only_for_its_virtual_machine(run_python):
    program = "import sys, chameleon_networks._evaluation.profile; print('tvm' in sys.modules)"
    assert run_python(program) == "False\n"


def test_a_fresh_process_needs_numpy_alone(tiny, delivery_of, tmp_path, run_python):
    delivery = delivery_of(NetworkFrontend(tiny))
    # With no winner at all everything is compiled by default.
    delivery = attrs.evolve(delivery, winners=())
    assert NetworkFrontend(tiny).deliver(delivery).failure is None
    moved = delivery.folder.rename(tmp_path / "elsewhere")
    assert run_python(SCRIPT, cwd=moved).splitlines() == [
        "(1, 10)",
        "[]",
        "image must have shape [1, 3, 8, 8], not [1, 3, 6, 8]",
        "input image is missing; the network takes image (float32 [1, 3, 8, 8])",
    ]
    manifest = writer.read_manifest(moved)
    manifest["cpu_features"].append("flight")
    link_library(moved / OBJECTS, manifest, moved / manifest["module"], "network")
    writer.write_manifest(moved, manifest)
    with pytest.raises(RuntimeError, match="this CPU lacks flight"):
        chameleon_networks.load(moved)


@pytest.mark.full
def test_a_wrong_kernel_is_named_and_nothing_delivered(tiny, delivery_of, doubling):
    delivery = delivery_of(NetworkFrontend(tiny))
    suspects = [delivery.winners[1], delivery.winners[2]]
    delivery = attrs.evolve(delivery, winners=suspects)
    culprit = suspects[0].task.name
    doubling(lambda kernels, fusion: kernels.task_of(fusion).name == culprit)
    result = NetworkFrontend(tiny).deliver(delivery)
    assert f"the kernel of {culprit} is to blame" in result.failure
    assert "; errors begin at " in result.failure
    assert f"; it has the kernel of {culprit}; " in result.failure
    assert result.max_relative_error > TOLERANCE
    assert not delivery.folder.exists()


@pytest.mark.full
def test_a_network_that_needs_a_permission_asks_for_it_or_says_that_it_is_refused(
    tiny, delivery_of, monkeypatch
):
    original = delivery_steps.compile_network

    def asking(*arguments, **options):
        return attrs.evolve(original(*arguments, **options), permissions=frozenset({AMX}))

    monkeypatch.setattr(delivery_steps, "compile_network", asking)
    delivery = attrs.evolve(delivery_of(NetworkFrontend(tiny)), winners=())
    result, refused = NetworkFrontend(tiny).deliver(delivery), request_permission(AMX)
    if refused:
        sentence = f"the kernels need AMX, and the system refuses arch_prctl: {refused}"
        assert sentence in result.failure
        assert not delivery.folder.exists()
    else:
        assert result.failure is None
        manifest = json.loads((delivery.folder / "manifest.json").read_text())
        assert manifest["permissions"] == [AMX]


@pytest.mark.parametrize(
    ("written", "words"),
    [("nvidia/nvidia-h100", "CPUs only"), ("llvm -mtriple=aarch64-linux-gnu", "cannot be")],
)
def test_other_machines_networks_are_not_compiled_here(tiny, delivery_of, written, words):
    target = TVMTargets(NoOptions()).resolve(written)
    delivery = attrs.evolve(delivery_of(NetworkFrontend(tiny)), target=target)
    with pytest.raises(ChameleonError, match=words):
        NetworkFrontend(tiny).deliver(delivery)

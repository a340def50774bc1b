"""What else runs a network gives the answers that torch gives."""

from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from chameleon_networks._frameworks import inference
from chameleon_networks._importers.options import BuiltinOptions, OnnxOptions
from chameleon_networks._importers.sources import BuiltinNetwork, OnnxNetwork


@pytest.fixture(scope="module")
def source():
    return BuiltinNetwork(BuiltinOptions(network="resnet_small"))


def _agree(network, name, inputs, expected):
    [got] = network.framework(name, 1)(inputs)
    np.testing.assert_allclose(got, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.full
@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_other_frameworks_run_torch_networks(source, name):
    pytest.importorskip(name)
    assert name in source.frameworks
    inputs = source.samples(np.random.default_rng(0))
    [expected] = source.framework("torch", 1)(inputs)
    _agree(source, name, inputs, expected)


@pytest.mark.full
def test_other_frameworks_run_onnx_files(source, tmp_path):
    pytest.importorskip("openvino")
    file = tmp_path / "net.onnx"
    file.write_bytes(inference.onnx_bytes(source.program))
    network = OnnxNetwork(OnnxOptions(source=str(file)))
    assert network.frameworks == ("onnxruntime", "openvino")
    inputs = source.samples(np.random.default_rng(1))
    [expected] = source.framework("torch", 1)(inputs)
    for name in network.frameworks:
        _agree(network, name, inputs, expected)


def test_what_is_not_installed_is_no_framework_to_compare_with(source, monkeypatch):
    monkeypatch.setattr(inference.importlib.util, "find_spec", lambda _: None)
    assert source.frameworks == ("torch", "torch.compile")
    assert source.left_out == {
        "onnxruntime": "onnxruntime and onnxscript are not installed",
        "openvino": "openvino is not installed",
    }


def test_a_part_that_is_missing_is_named(source, monkeypatch):
    there = inference.importlib.util.find_spec
    monkeypatch.setattr(
        inference.importlib.util,
        "find_spec",
        lambda name: None if name == "onnxscript" else there(name) or True,
    )
    assert source.left_out == {"onnxruntime": "onnxscript is not installed"}
    onnx = OnnxNetwork(OnnxOptions(source="net.onnx"))
    assert onnx.left_out == {}, "a file needs no exporter"


def _recurrent(file, inputs, **attributes):
    node = onnx.helper.make_node("GRU", inputs, ["y"], hidden_size=2, **attributes)
    kinds = {"x": (1, [5, 3, 4]), "w": (1, [1, 6, 4]), "r": (1, [1, 6, 2]), "n": (6, [3])}
    infos = [onnx.helper.make_tensor_value_info(name, *kinds[name]) for name in inputs if name]
    output = onnx.helper.make_tensor_value_info("y", 1, [5, 1, 3, 2])
    graph = onnx.helper.make_graph([node], "recurrent", infos, [output])
    onnx.save(onnx.helper.make_model(graph), file)
    return str(file)


def test_the_evaluator_of_onnx_computes_nothing_that_it_partly_ignores(tmp_path):
    """It ignores lengths of sequences, and activations."""
    file = tmp_path / "net.onnx"
    assert inference.onnx_evaluator(_recurrent(file, ["x", "w", "r"]))
    with pytest.raises(NotImplementedError, match="ignores sequence_lens of a node GRU"):
        inference.onnx_evaluator(_recurrent(file, ["x", "w", "r", "", "n"]))
    with pytest.raises(NotImplementedError, match="ignores clip of a node GRU"):
        inference.onnx_evaluator(_recurrent(file, ["x", "w", "r"], clip=0.5))


def test_openvino_does_not_round_inputs_of_products_in_float32(monkeypatch):
    """Products with weights of a few bits would round their inputs to eight bits."""
    openvino = pytest.importorskip("openvino")
    asked = []
    core = SimpleNamespace(compile_model=lambda *args: asked.append(args[2]))
    monkeypatch.setattr(openvino, "Core", lambda: core)
    for hint in ("f32", None):
        inference.openvino_compiled(None, threads=1, hint=hint)
    assert [one.get("DYNAMIC_QUANTIZATION_GROUP_SIZE") for one in asked] == [0, None]

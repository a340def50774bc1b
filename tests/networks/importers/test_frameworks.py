"""What else runs a network gives the answers that torch gives."""

import numpy as np
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

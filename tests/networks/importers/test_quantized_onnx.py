"""Quantized ONNX networks are read and computed in integers, as the standard defines them."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from chameleon_core._errors import ConfigError
from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._frameworks.inference import ONNXRUNTIME, ONNXRUNTIME_FLOAT32
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._importers.options import OnnxOptions
from chameleon_networks._importers.sources import OnnxNetwork
from marks import full
from onnxruntime import quantization

helper, FLOAT, UINT8 = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8
INT32 = onnx.TensorProto.INT32
SHAPE = (1, 3, 12, 12)


class Graph:
    """Nodes and constants of a model, as they are added."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, array):
        name = f"constant{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, kind, *inputs, **attributes):
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def normal(self, *shape):
        scale = np.float32(np.sqrt(np.prod(shape[1:])))
        return self.constant(self.rng.standard_normal(shape).astype(np.float32) / scale)

    def save(self, file, given, made, *, opset=17):
        kind, shape = given
        name, made_kind, made_shape = made
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info("image", kind, shape)],
            [helper.make_tensor_value_info(name, made_kind, made_shape)],
            self.constants,
        )
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), file)
        return file

    def network(self, file, given, made, **more):
        self.save(file, given, made, **more)
        return OnnxNetwork(OnnxOptions(source=str(file), compare=False))


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A network in float32: convolutions, pooling, a residual, a concatenation, a dense layer."""
    graph = Graph()
    conv = [graph.normal(16, 3, 3, 3), graph.normal(16)]
    x = graph.node("Relu", graph.node("Conv", "image", *conv, pads=[1] * 4))
    x = graph.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    depthwise = [graph.normal(16, 1, 3, 3), graph.normal(16)]
    y = graph.node("Conv", x, *depthwise, pads=[1] * 4, group=16)
    x = graph.node("Relu", graph.node("Add", x, y))
    x = graph.node("Concat", x, x, axis=1)
    x = graph.node("Relu", graph.node("Conv", x, graph.normal(24, 32, 1, 1), graph.normal(24)))
    x = graph.node("Flatten", graph.node("GlobalAveragePool", x))
    x = graph.node("Gemm", x, graph.normal(10, 24), graph.normal(10), transB=1)
    file = tmp_path_factory.mktemp("real") / "real.onnx"
    return graph.save(file, (FLOAT, SHAPE), (x, FLOAT, [1, 10]))


class Images(quantization.CalibrationDataReader):
    """A few random images to calibrate with."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self._left = [rng.standard_normal(SHAPE).astype(np.float32) for _ in range(4)]

    def get_next(self):
        return {"image": self._left.pop()} if self._left else None


def quantized(real, file, activations, weights, **options):
    """The network of a file, as onnxruntime quantizes it into another file."""
    types = {"activation_type": activations, "weight_type": weights}
    types = {name: quantization.QuantType[kind] for name, kind in types.items()}
    quantization.quantize_static(real, file, Images(), **types, **options)
    return OnnxNetwork(OnnxOptions(source=str(file), compare=False))


@pytest.mark.full
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("activations", ["QUInt8", "QInt8"])
def test_networks_that_onnxruntime_quantized(real, tmp_path, form, activations, as_guessed):
    options = {"quant_format": quantization.QuantFormat[form], "per_channel": True}
    network = quantized(real, tmp_path / "network.onnx", activations, "QInt8", **options)
    assert network.frameworks[0] == ONNXRUNTIME_FLOAT32
    fusions = prepared_network(network)[1]
    assert [fusion.spec.dtype for fusion in fusions] == ["int8"] * 4
    assert {fusion.spec.output_dtype for fusion in fusions} == {"uint8"}
    inputs = network.samples(np.random.default_rng(3))
    got = as_guessed(network)(*inputs)
    [wanted] = network.framework(ONNXRUNTIME_FLOAT32, 2)(inputs)
    # A step of the output is more than a rounding of float32, and less than a wrong number.
    assert np.abs(got - wanted).max() <= np.abs(wanted).max() / 100


@pytest.mark.full
def test_a_network_is_verified_by_what_it_means(delivery_into, tmp_path):
    # Of weights of 8 bits, onnxruntime's own kernels may saturate sums.
    graph, made = standard_chain(0, bits=8)
    network = graph.network(tmp_path / "chain.onnx", (FLOAT, SHAPE), (made, UINT8, [1, 12]))
    source = NetworkFrontend(network)
    result = source.deliver(delivery_into(source, tmp_path / "network", guessed=True))
    assert result.failure is None
    assert result.reference == ONNXRUNTIME_FLOAT32
    # A step is 1/255 of the largest number, at least.
    assert result.max_relative_error <= 1.5 / 128


def standard_chain(seed, bits):
    """``QLinearConv`` twice and ``QLinearMatMul``, with weights of so many bits."""
    graph = Graph(seed)
    rng, most = graph.rng, 2 ** (bits - 1)

    def scale(*shape):
        return graph.constant(rng.uniform(0.005, 0.02, shape).astype(np.float32))

    def zero():
        return graph.constant(np.uint8(rng.integers(0, 256)))

    def weights(*shape):
        return graph.constant(rng.integers(-most, most, shape).astype(np.int8))

    def step(low):
        return [graph.constant(np.float32(rng.uniform(low, 2 * low))), zero()]

    image, first, second, last = step(0.02), step(0.2), step(2.0), step(20.0)
    none = graph.constant(np.int8(0))
    x = graph.node("QuantizeLinear", "image", *image)
    bias = graph.constant(rng.integers(-2000, 2000, 16).astype(np.int32))
    operands = [weights(16, 3, 3, 3), scale(16), graph.constant(np.zeros(16, np.int8))]
    x = graph.node("QLinearConv", x, *image, *operands, *first, bias, pads=[1] * 4)
    operands = [weights(16, 1, 3, 3), scale(), none]
    x = graph.node("QLinearConv", x, *first, *operands, *second, strides=[2, 2], group=16)
    x = graph.node("Flatten", x)
    x = graph.node("QLinearMatMul", x, *second, weights(400, 12), scale(), none, *last)
    return graph, x


@pytest.mark.parametrize("seed", [0, full(1)])
def test_what_the_standard_defines_is_equal_bit_by_bit(tmp_path, seed, as_guessed):
    # With weights of 7 bits no kernel of onnxruntime's saturates a sum of two products.
    graph, made = standard_chain(seed, bits=7)
    network = graph.network(tmp_path / "chain.onnx", (FLOAT, SHAPE), (made, UINT8, [1, 12]))
    inputs = network.samples(np.random.default_rng(3))
    got = as_guessed(network)(*inputs)
    assert {fusion.spec.dtype for fusion in prepared_network(network)[1]} == {"int8"}
    [wanted] = network.framework(ONNXRUNTIME, 2)(inputs)
    assert len(np.unique(wanted)) > 3
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("kind", ["ConvInteger", "MatMulInteger"])
def test_sums_of_integers_are_exact(tmp_path, kind, as_guessed):
    graph = Graph(1)
    shape = (1, 3, 9, 9) if kind == "ConvInteger" else (5, 40)
    sizes = (8, 3, 3, 3) if kind == "ConvInteger" else (40, 8)
    numbers = graph.rng.integers(-128, 128, sizes).astype(np.int8)
    weights = graph.constant(numbers)
    zeros = graph.constant(np.uint8(77)), graph.constant(np.int8(0))
    made = graph.node("Cast", graph.node(kind, "image", weights, *zeros), to=FLOAT)
    out = (made, FLOAT, (1, 8, 7, 7) if kind == "ConvInteger" else (5, 8))
    network = graph.network(tmp_path / "sums.onnx", (UINT8, shape), out)
    inputs = network.samples(np.random.default_rng(3))
    got = as_guessed(network)(*inputs)
    assert [fusion.spec.dtype for fusion in prepared_network(network)[1]] == ["int8"]
    assert len(np.unique(inputs[0])) > 50
    numbers = numbers.astype(np.int64)
    data = inputs[0].astype(np.int64) - 77
    if kind == "ConvInteger":
        seen = np.lib.stride_tricks.sliding_window_view(data, (3, 3), (2, 3))
        wanted = np.einsum("nchwyx,fcyx->nfhw", seen, numbers)
    else:
        wanted = data @ numbers
    np.testing.assert_array_equal(got, wanted)


def test_sums_that_float32_would_round(tmp_path, as_guessed):
    """onnxruntime's kernel for unsigned data saturates sums of two products."""
    graph, depth = Graph(1), 901
    numbers = graph.rng.integers(-128, -100, (depth, 16)).astype(np.int8)
    made = graph.node("MatMulInteger", "image", graph.constant(numbers))
    network = graph.network(tmp_path / "deep.onnx", (UINT8, (2, depth)), (made, INT32, (2, 16)))
    data = graph.rng.integers(200, 256, (2, depth))
    wanted = data @ numbers.astype(np.int64)
    exact = wanted.astype(np.float32) == wanted
    assert not exact.all()
    np.testing.assert_array_equal(as_guessed(network)(data.astype(np.uint8)), wanted)


def test_zero_points_that_are_computed(tmp_path, as_guessed):
    graph = Graph(2)
    x = graph.node("MatMul", "image", graph.normal(96, 64))
    x = graph.node("MatMul", graph.node("Relu", x), graph.normal(64, 10))
    real = graph.save(tmp_path / "real.onnx", (FLOAT, [7, 96]), (x, FLOAT, [7, 10]))
    file = tmp_path / "dynamic.onnx"
    quantization.quantize_dynamic(real, file, per_channel=True)
    network = OnnxNetwork(OnnxOptions(source=str(file), compare=False))
    assert [fusion.spec.dtype for fusion in prepared_network(network)[1]] == ["int8"] * 2
    inputs = network.samples(np.random.default_rng(3))
    got = as_guessed(network)(*inputs)
    [wanted] = network.framework(ONNXRUNTIME_FLOAT32, 2)(inputs)
    assert np.abs(got - wanted).max() <= 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize(("version", "axis"), [(12, {"axis": 1}), full(12, {}), (13, {"axis": 1})])
def test_softmax_and_where_between_quantized_tensors(tmp_path, version, axis, as_guessed):
    graph, shape = Graph(3), (2, 4, 5)
    wide, fine = (
        [graph.constant(np.float32(scale)), graph.constant(np.uint8(zero))]
        for scale, zero in ((0.02, 128), (1 / 256, 0))
    )
    own = {"domain": "com.microsoft"}
    x = graph.node("QuantizeLinear", "image", *wide)
    y = graph.node("QLinearSoftmax", x, *wide, *fine, opset=version, **axis, **own)
    mask = graph.constant(graph.rng.random(shape) < 0.2)
    z = graph.node("QLinearWhere", mask, x, *wide, y, *fine, *fine, **own)
    network = graph.network(tmp_path / "n.onnx", (FLOAT, shape), (z, UINT8, shape), opset=version)
    inputs = network.samples(np.random.default_rng(3))
    got = as_guessed(network)(*inputs)
    # The network's own meaning of the file would be the same as the network's.
    [wanted] = onnxruntime.InferenceSession(tmp_path / "n.onnx").run(None, {"image": inputs[0]})
    assert len(np.unique(wanted)) > 10
    assert np.abs(got.astype(int) - wanted).max() <= 1


def test_weights_with_a_zero_point_are_computed_in_float32(real, tmp_path):
    network = quantized(real, tmp_path / "network.onnx", "QUInt8", "QUInt8")
    assert network.has_quantized_activations
    assert "float32" in {fusion.spec.dtype for fusion in prepared_network(network)[1]}


def test_with_weights_alone_quantized_nothing_is_rounded(tmp_path):
    graph = Graph()
    numbers = graph.constant(graph.rng.integers(-128, 128, (48, 10)).astype(np.int8))
    weights = graph.node("DequantizeLinear", numbers, graph.constant(np.float32(0.01)))
    out = graph.node("MatMul", "image", weights)
    network = graph.network(tmp_path / "weights.onnx", (FLOAT, [3, 48]), (out, FLOAT, [3, 10]))
    assert (network.quantized, network.has_quantized_activations) == (True, False)
    assert [fusion.spec.dtype for fusion in prepared_network(network)[1]] == ["float32"]


def test_weights_that_are_quantized_by_blocks_become_those_of_a_task(tmp_path, as_guessed):
    graph = Graph()
    integers = graph.rng.integers(-128, 128, (48, 10)).astype(np.int8)
    numbers = graph.constant(integers)
    factors = graph.rng.random((3, 10)).astype(np.float32)
    weights = graph.node(
        "DequantizeLinear", numbers, graph.constant(factors), axis=0, block_size=16
    )
    out = graph.node("MatMul", "image", weights)
    form = (FLOAT, [2, 3, 48]), (out, FLOAT, [2, 3, 10])
    network = graph.network(tmp_path / "blocks.onnx", *form, opset=21)
    assert [fusion.spec.dtype for fusion in prepared_network(network)[1]] == ["float32"]
    [image] = network.samples(np.random.default_rng(3))
    wanted = image @ (integers * np.repeat(factors, 16, 0))
    np.testing.assert_allclose(as_guessed(network)(image), wanted, rtol=1e-4, atol=1e-2)


def test_an_operator_that_nobody_knows_is_refused(tmp_path):
    graph = Graph()
    made = graph.node("QLinearCosine", "image", domain="com.microsoft")
    network = graph.network(tmp_path / "odd.onnx", (UINT8, [1, 8]), (made, UINT8, [1, 8]))
    with pytest.raises(ConfigError, match=r"node 'qlinearcosine0' \(QLinearCosine\)") as caught:
        _ = network.imported
    assert "QDQ" in caught.value.hint


def test_an_old_operator_set_is_converted(tmp_path):
    graph, made = standard_chain(0, bits=7)
    out = made, UINT8, [1, 12]
    network = graph.network(tmp_path / "old.onnx", (FLOAT, SHAPE), out, opset=10)
    assert {fusion.spec.dtype for fusion in prepared_network(network)[1]} == {"int8"}

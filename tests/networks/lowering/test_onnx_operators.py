"""Operators of ONNX give onnxruntime's numbers, compiled without a tuner."""

import numpy as np
import onnx.reference
import onnxruntime
import pytest
from chameleon_core.errors import ConfigError
from chameleon_networks.backends.onnx_networks import prepare
from chameleon_networks.importers.onnx.importing import imported

from ..onnx_files import onnx_file  # noqa: TID252 - shared by folders
from .networks import answers, difference
from .onnx_cases import CASES, FOUND, one


def require_onnxruntimes_numbers(proto, inputs):
    """Compare what a model gives with onnxruntime; returns the graph that was read."""
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    expected = session.run(None, dict(inputs))
    graph = imported(proto, {})
    got = answers(graph.module, list(inputs.values()))
    assert [difference(*pair) for pair in zip(got, expected, strict=True)] == [""] * len(expected)
    return graph


@pytest.mark.parametrize("model", CASES.values(), ids=CASES)
def test_operators_give_onnxruntimes_numbers(model):
    graph = require_onnxruntimes_numbers(model.proto, model.inputs)
    assert all(location.owner == f"the_{model.kind}" for location in graph.locations.values())
    assert f"the_{model.kind}" in {location.owner for location in graph.locations.values()}


@pytest.mark.parametrize("model", FOUND.values(), ids=FOUND)
def test_what_random_graphs_found_gives_the_references_numbers(model):
    expected = onnx.reference.ReferenceEvaluator(model.proto).run(None, dict(model.inputs))
    got = prepare(model.proto).run(dict(model.inputs))
    assert [difference(*pair) for pair in zip(got, expected, strict=True)] == [""] * len(expected)


def test_a_fresh_process_reads_functions(tmp_path, run_python):
    """Other tests import modules of ONNX that Chameleon needs, too."""
    text = """(float[2] x) => (float[2] y) { y = my.scaled(x) }
        <opset_import: ["": 18], domain: "my"> scaled <by: float = 3.0> (a) => (b)
        { factor = Constant <value_float: float = @by> () b = Mul(a, factor) }"""
    file = onnx_file(tmp_path / "net.onnx", text, opsets='"" : 18, "my" : 1')
    program = "import sys; from chameleon_networks.importers.onnx import models; "
    program += "print(*sorted(models.onnx_graph(sys.argv[1], {}).operators))"
    assert run_python(program, file) == "Constant Mul\n"


def test_small_numbers_and_nan_are_those_of_onnxruntime():
    """Of one network, which calls two overloads of a function with defaults of their own."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22, "my": 1]>
        net (float[9] x, float[9] z) => (float[n] y) <float low = {0.5}, float high = {1.5}> {
            a = Softplus (x)  b = Mish (x)  c = Atanh (x)  d = Relu (x)  e = Clip (x, low, high)
            f = Max (x, z)  g = my.elu: one (x)  h = my.elu: two (x)
            y = Concat <axis = 0> (a, b, c, d, e, f, g, h)
        }
        <opset_import: ["": 22], domain: "my", overload: "one"> elu <by: float = 2.0> (a) => (b)
        { b = Elu <alpha: float = @by> (a) }
        <opset_import: ["": 22], domain: "my", overload: "two"> elu <by: float = 3.0> (a) => (b)
        { b = Elu <alpha: float = @by> (a) }""")
    x = np.array([-20, -1e-8, 1e-8, 1e-4, 0.5, np.nan, 2, 20, np.inf], np.float32)
    inputs = {"x": x, "z": x[::-1].copy()}
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    got = answers(imported(model, {}).module, list(inputs.values()))
    np.testing.assert_allclose(got, expected, rtol=1e-6)


OF_INDICES = {
    "Gather": ("Gather (x, i)", "[4, 2, 5]"),
    "GatherElements": ("GatherElements (x, i)", "[4, 2]"),
    "GatherND": ("GatherND (x, i)", "[4]"),
    "ScatterElements": ('ScatterElements <reduction = "add"> (x, i, pairs)', "[5, 5]"),
    "ScatterND": ("ScatterND (x, i, singles)", "[5, 5]"),
    "RoiAlign": (
        "RoiAlign <output_height = 2, output_width = 2> (images, boxes, j)",
        "[4, 1, 2, 2]",
    ),
}


@pytest.mark.parametrize("name", OF_INDICES)
def test_no_index_leaves_an_array(name):
    """The nearest index counts instead. The memory beside an array holds other values."""
    node, shape = OF_INDICES[name]
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 18]>
        chosen (float[5, 5] x, int64[4, 2] i, float[4, 2] pairs, float[4] singles,
                float[3, 1, 4, 4] images, float[4, 4] boxes, int64[4] j) => (float{shape} y)
        {{ y = {node} }}"""
    )
    draw = np.random.default_rng(0)
    floats = {
        given.name: draw.random([extent.dim_value for extent in given.type.tensor_type.shape.dim])
        for given in model.graph.input
    }
    inputs = {each: value.astype(np.float32) for each, value in floats.items()}
    inputs["boxes"] = np.array([[0, 0, 2, 3], [1, 1, 3, 2], [2, 0, 3, 3], [0, 0, 3, 3]], np.float32)
    far = {"i": np.array([[-(10**12), 3], [7, 10**12], [4, -5], [5, 0]]), "j": [0, 3, -1, 10**9]}
    near = {"i": np.clip(far["i"], -5, 4), "j": np.clip(far["j"], 0, 2)}
    got, expected = (
        prepare(model).run({**inputs, **{key: np.array(at) for key, at in indices.items()}})
        for indices in (far, near)
    )
    np.testing.assert_array_equal(got, expected)


def test_parts_of_a_comparison_are_truth_values():
    """Both read an array of the kernel's own."""
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18]>
        parts (float[8, 8] x, float[8] y) => (bool[4, 8] first, bool[4, 8] second) {
            less = Less(x, y)
            first, second = Split <axis = 0, num_outputs = 2> (less)
        }"""
    )
    x = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    got = prepare(model).run([x, x[0]])
    np.testing.assert_array_equal(np.concatenate(got), x < x[0])


def test_weights_that_follow_from_constants_are_constants():
    """PyTorch's exporter writes the gates in ONNX's order by slices and a concatenation."""
    model = CASES["lstm"]
    names = list(model.constants)
    weights = model.constants[names[0]]
    proto = model.proto
    graph = proto.graph
    parts = [weights[:, 5 * gate : 5 * gate + 5] for gate in range(4)]
    constants = {f"gate{gate}": part for gate, part in enumerate(parts)}
    graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in constants.items())
    graph.node.insert(0, onnx.helper.make_node("Concat", list(constants), ["gates"], axis=1))
    graph.node[1].input[1] = "gates"
    onnx.checker.check_model(proto)
    require_onnxruntimes_numbers(proto, model.inputs)


def test_what_is_refused_names_its_node():
    numbers = np.ones((2, 3), np.float32)
    proto = one("Dropout", [numbers], np.float32(0.5), np.asarray(True)).proto
    with pytest.raises(ConfigError, match=r"node 'the_Dropout' \(Dropout\) .* training mode"):
        imported(proto, {})


def test_a_window_larger_than_its_image_is_refused():
    image = np.ones((1, 2, 4, 4), np.float32)
    proto = one("AveragePool", [image], kernel_shape=[6, 2]).proto
    with pytest.raises(ConfigError, match="a window is larger than the image"):
        imported(proto, {})

"""Operators of ONNX give onnxruntime's numbers, compiled without a tuner."""

import numpy as np
import onnx.reference
import onnxruntime
import pytest
import torch
from chameleon_core._errors import ConfigError
from chameleon_networks._backends.onnx_networks import prepare, run_node
from chameleon_networks._importers.onnx.importer import import_model
from marks import full

from ..onnx_files import onnx_file  # noqa: TID252 - shared by folders
from .networks import answers, batches, difference
from .onnx_cases import CASES, FOUND, FUSED, by_version, one, together


def onnxruntimes_numbers(proto, inputs):
    """What onnxruntime gives for a model."""
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(inputs))


def differences(models, got, expected):
    """What is wrong with outputs of several models, by the models' names; empty if nothing is."""
    names = [name for name, model in models.items() for _ in range(model.outputs)]
    pairs = zip(names, got, expected, strict=True)
    return {name: wrong for name, *pair in pairs if (wrong := difference(*pair))}


@pytest.mark.full
@pytest.mark.parametrize("models", batches(by_version(CASES)))
def test_operators_give_onnxruntimes_numbers(models):
    proto, inputs = together(models.values())
    graph = import_model(proto, {})
    got = answers(graph.module, list(inputs.values()))
    assert differences(models, got, onnxruntimes_numbers(proto, inputs)) == {}
    owners = {location.owner for location in graph.locations.values()}
    assert owners == {node.name for node in proto.graph.node}


@pytest.mark.parametrize("pad", [full(0), 1, full(3)])
@pytest.mark.parametrize(("kernel", "added"), [(2, 1), (2, 2), (3, 2), (3, 4)])
def test_output_padding_uncovers_what_pads_crop(pad, kernel, added):
    """onnxruntime refuses an output padding of a stride or more, and torch of a dilation."""
    rng, dilation = np.random.default_rng(0), 3
    x = rng.standard_normal((1, 2, 9)).astype(np.float32)
    filters = rng.standard_normal((2, 3, kernel)).astype(np.float32)
    options = {"dilations": [dilation], "pads": [pad] * 2, "output_padding": [added]}
    models = {
        "constant": one("ConvTranspose", [x], filters, **options),
        "computed": one("ConvTranspose", [x, filters], **options),
    }
    proto, inputs = together(models.values())
    whole = torch.conv_transpose1d(torch.tensor(x), torch.tensor(filters), dilation=dilation)
    whole = np.pad(whole.numpy(), [(0, 0), (0, 0), (0, added)])
    expected = [whole[..., pad : whole.shape[-1] - pad]] * 2
    assert (
        differences(
            models, answers(import_model(proto, {}).module, list(inputs.values())), expected
        )
        == {}
    )


def packed(numbers, bits):
    """Rows of numbers of few bits in bytes, the lowest bits first."""
    rest = -numbers.shape[-1] % (8 // bits)
    numbers = np.pad(numbers, [*[(0, 0)] * (numbers.ndim - 1), (0, rest)])
    parts = numbers.reshape(*numbers.shape[:-1], -1, 8 // bits).astype(np.uint8)
    return np.bitwise_or.reduce(parts << np.arange(0, 8, bits, dtype=np.uint8), -1)


@pytest.mark.parametrize("zero", ["none", "packed", "float"])
@pytest.mark.parametrize(
    ("bits", "depth", "block"), [full(4, 2048, 512), (4, 80, 32), full(8, 64, 16), (2, 72, 16)]
)
def test_weights_of_few_bits_are_those_of_their_blocks(bits, depth, block, zero):
    rng, columns, blocks = np.random.default_rng(0), 5, -(-depth // block)
    codes = rng.integers(0, 2**bits, (columns, blocks, block))
    scales = (rng.random((columns, blocks)) / 8 + 0.01).astype(np.float32)
    zeros = rng.integers(0, 2**bits, (columns, blocks))
    constants = [packed(codes, bits), scales.reshape(-1), None]
    if zero == "none":
        zeros[:] = 2 ** (bits - 1)
    else:
        is_packed = zero == "packed"
        constants[2] = packed(zeros, bits).reshape(-1) if is_packed else zeros.astype(np.float32)
    order = rng.permutation(depth).astype(np.int32) // block if zero == "float" else None
    bias = rng.standard_normal(columns).astype(np.float32)
    x = rng.standard_normal((2, 3, depth)).astype(np.float32)
    options = {"K": depth, "N": columns, "bits": bits, "block_size": block}
    constants += [order, bias]
    model = one("MatMulNBits", [x], *constants, **options, domain="com.microsoft")
    group = np.arange(depth) // block if order is None else order
    numbers = codes.reshape(columns, -1)[:, :depth] - zeros[:, group]
    expected = [x @ (numbers * scales[:, group]).astype(np.float32).T + bias]
    got = answers(import_model(model.proto, {}).module, [x])
    assert differences({"product": model}, got, expected) == {}


@pytest.mark.parametrize("name", [full(name) for name in FUSED])
def test_operators_of_onnxruntime_give_its_numbers(name):
    model = FUSED[name]
    expected = onnxruntimes_numbers(model.proto, model.inputs)
    got = answers(import_model(model.proto, {}).module, list(model.inputs.values()))
    assert differences({name: model}, got, expected) == {}


def test_the_largest_of_no_numbers_are_empty():
    x = np.ones((2, 7), np.float32)
    models = {"none": one("TopK", [x], [0], axis=-1, outputs=2)}
    proto, inputs = together(models.values())
    got = answers(import_model(proto, {}).module, list(inputs.values()))
    assert differences(models, got, onnxruntimes_numbers(proto, inputs)) == {}
    assert [array.shape for array in got] == [(2, 0)] * 2


_WAYS = ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners", "tf_crop_and_resize")
_WAYS += ("half_pixel_symmetric", "tf_half_pixel_for_nn")
_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_POLICIES = ("stretch", "not_larger", "not_smaller")


def _resize(rng, opset):
    """A random ``Resize`` of two axes, which may stay as long as they are."""
    mode = str(rng.choice(["nearest", "linear", "cubic"] if opset > 10 else ["nearest", "linear"]))
    shape = [int(rng.integers(1, 3)), 1, *(int(extent) for extent in rng.integers(2, 13, 2))]
    x, scales = rng.standard_normal(shape).astype(np.float32), rng.integers(2, 30, 2) / 10
    scales = np.array([1, 1, *np.where(rng.random(2) < 0.2, 1, scales)], np.float32)
    if opset < 11:
        return one("Resize", [x], scales, mode=mode, opset=opset)
    way = str(rng.choice(_WAYS))
    more = {"coordinate_transformation_mode": way, "extrapolation_value": 5.0}
    if mode == "nearest":
        more["nearest_mode"] = str(rng.choice(_ROUNDINGS))
    else:
        more["antialias"] = int(rng.integers(2))
        more["exclude_outside"] = int(mode == "cubic" and rng.integers(2))
    begins = rng.uniform(-0.2, 0.6, 2)
    crop = np.array([[0, 0, *begins], [1, 1, *(begins + 0.4)]], np.float32)
    sizes = np.array([*shape[:2], *np.where(rng.random(2) < 0.2, 1, rng.integers(1, 20, 2))])
    by_sizes = rng.integers(2)
    if rng.integers(2):
        more["axes"] = axes = [[2, 3], [3, 2], [-2, -1]][rng.integers(3)]
        scales, sizes, crop = scales[axes], sizes[axes], crop[:, axes]
        if by_sizes and axes[0] > 0:  # onnxruntime does not resize by a policy of negative axes
            more["keep_aspect_ratio_policy"] = str(rng.choice(_POLICIES))
    crop = crop.ravel() if way == "tf_crop_and_resize" else None
    given = (None, sizes) if by_sizes else (scales,)
    return one("Resize", [x], crop, *given, mode=mode, opset=opset, **more)


@pytest.mark.full
@pytest.mark.parametrize("opset", [10, 19])
def test_images_of_random_shapes_are_resized_as_in_onnxruntime(opset):
    rng = np.random.default_rng(0)
    models = {f"{number}": _resize(rng, opset) for number in range(60 if opset > 10 else 10)}
    proto, inputs = together(models.values())
    got = answers(import_model(proto, {}).module, list(inputs.values()))
    assert differences(models, got, onnxruntimes_numbers(proto, inputs)) == {}


_RESIZED = {
    "image": ((1, 2, 5, 7), (1, 1, 2, 1.5)),
    "smaller image": ((1, 2, 9, 7), (1, 1, 0.5, 0.7)),
    "channels last": ((1, 5, 7, 3), (1, 1.5, 1.7, 1)),
    "plane": ((6, 5), (1.5, 2.5)),
    "row of planes": ((2, 5, 6), (1, 1.5, 1.5)),
    "volume": ((1, 2, 3, 4, 5), (1, 1, 1.5, 2, 0.7)),
}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["uint8", "int8", "int32"])
def test_linear_resizing_of_integers_is_onnxruntimes(kind):
    """A constant image shows each rounding error, since fractions are left out."""
    rng = np.random.default_rng(0)
    models = {}
    for number, (name, (shape, scales)) in enumerate(_RESIZED.items()):
        way = ("half_pixel_symmetric", "half_pixel", "align_corners", "asymmetric")[number % 4]
        crop = np.float32([*([0.2] * len(shape)), *([0.7] * len(shape))])
        for image in (rng.integers(-(2**30), 2**30, shape), np.full(shape, 93)):
            for crop_or_none, transform in ((None, way), (crop, "tf_crop_and_resize")):
                models[f"{name} {len(models)}"] = one(
                    "Resize",
                    [image.astype(kind)],
                    crop_or_none,
                    np.array(scales, np.float32),
                    mode="linear",
                    coordinate_transformation_mode=transform,
                    extrapolation_value=-2.0,
                )
    proto, inputs = together(models.values())
    got = answers(import_model(proto, {}).module, list(inputs.values()))
    for name, ours, wanted in zip(models, got, onnxruntimes_numbers(proto, inputs), strict=True):
        np.testing.assert_array_equal(ours, wanted, strict=True, err_msg=name)


@pytest.mark.full
@pytest.mark.parametrize("models", batches(by_version(FOUND)))
def test_what_random_graphs_found_gives_the_references_numbers(models):
    proto, inputs = together(models.values())
    expected = onnx.reference.ReferenceEvaluator(proto).run(None, inputs)
    assert differences(models, prepare(proto).run(inputs), expected) == {}


def test_a_condition_may_have_an_axis():
    text = """<ir_version: 9, opset_import: ["" : 18]> net (float[1] x, float y) => (float z) {
        nothing = Constant <value_float = 0.0> ()
        c = Greater(x, nothing)
        z = If <then_branch = t () => (float p) { p = Neg(y) },
                else_branch = e () => (float q) { q = Exp(y) }> (c)
    }"""
    model = onnx.parser.parse_model(text)
    inputs = {"x": np.ones(1, np.float32), "y": np.asarray(2, np.float32)}
    [z] = answers(import_model(model, {}).module, list(inputs.values()))
    np.testing.assert_array_equal(z, onnxruntimes_numbers(model, inputs)[0], strict=True)


def test_the_backend_sorts_a_copy_of_a_model():
    text = '<ir_version: 9, opset_import: ["" : 18]> net (float[3] x) => (float[3] y)'
    model = onnx.parser.parse_model(f"{text} {{ y = Neg(r) r = Relu(x) }}")
    [y] = prepare(model).run([np.array([-1, 0, 2], np.float32)])
    np.testing.assert_array_equal(y, [0, 0, -2])
    assert [node.op_type for node in model.graph.node] == ["Neg", "Relu"]


def test_a_later_node_may_use_a_name_of_an_inner_graph():
    text = """<ir_version: 9, opset_import: ["" : 18]> net (float[3] x, bool k) => (float[3] z) {
        y = If <then_branch = t () => (float[3] p) { a = Neg(x) p = Exp(a) },
                else_branch = e () => (float[3] q) { q = Exp(x) }> (k)
        a = Relu(y)
        z = Neg(a)
    }"""
    model = onnx.parser.parse_model(text)
    inputs = {"x": np.array([-1, 0, 2], np.float32), "k": np.asarray(True)}
    [z] = prepare(model).run(list(inputs.values()))
    np.testing.assert_allclose(z, onnxruntimes_numbers(model, inputs)[0], rtol=1e-5)


@pytest.mark.full
def test_a_fresh_process_reads_functions(tmp_path, run_python):
    """Other tests import modules of ONNX that Chameleon needs, too."""
    text = """(float[2] x) => (float[2] y) { y = my.scaled(x) }
        <opset_import: ["": 18], domain: "my"> scaled <by: float = 3.0> (a) => (b)
        { factor = Constant <value_float: float = @by> () b = Mul(a, factor) }"""
    file = onnx_file(tmp_path / "net.onnx", text, opsets='"" : 18, "my" : 1')
    program = "import sys; from chameleon_networks._importers.onnx import models; "
    program += "print(*sorted(models.onnx_graph(sys.argv[1], {}).operators))"
    assert run_python(program, file) == "Constant Mul\n"


def test_small_numbers_and_nan_are_those_of_onnxruntime():
    """Of one network, which calls two overloads of a function with defaults of their own."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 22, "my": 1]>
        net (float[9] x, float[9] z, float s) => (float[n] y)
            <float low = {0.5}, float high = {1.5}, float zero = {0}> {
            a = Softplus (x)  b = Mish (x)  c = Atanh (x)  d = Relu (x)  e = Clip (x, low, high)
            f = Max (x, z)  g = my.elu: one (x)  h = my.elu: two (x)  i = Max (x, s)  j = Min (s, x)
            k = Div (zero, x)  l = Div (zero, z)
            y = Concat <axis = 0> (a, b, c, d, e, f, g, h, i, j, k, l)
        }
        <opset_import: ["": 22], domain: "my", overload: "one"> elu <by: float = 2.0> (a) => (b)
        { b = Elu <alpha: float = @by> (a) }
        <opset_import: ["": 22], domain: "my", overload: "two"> elu <by: float = 3.0> (a) => (b)
        { b = Elu <alpha: float = @by> (a) }""")
    x = np.array([-20, -1e-8, 1e-8, 1e-4, 0.5, np.nan, 2, 20, np.inf], np.float32)
    inputs = {"x": x, "z": x[::-1].copy(), "s": np.array(np.nan, np.float32)}
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    with np.errstate(over="ignore"):  # onnxruntime subtracts 1, which loses a small x
        elus = [np.where(x > 0, x, by * np.expm1(x)) for by in (2.0, 3.0)]
    expected[0][6 * x.size : 8 * x.size] = np.concatenate(elus)
    got = answers(import_model(model, {}).module, list(inputs.values()))
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.full
def test_no_index_leaves_an_array():
    """The nearest index counts instead. The memory beside an array holds other values."""
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18]>
        chosen (float[5, 5] x, int64[4, 2] i, float[4, 2] pairs, float[4] singles,
                float[3, 1, 4, 4] images, float[4, 4] boxes, int64[4] j) =>
               (float[4, 2, 5] gather, float[4, 2] gather_elements, float[4] gather_nd,
                float[5, 5] scatter_elements, float[5, 5] scatter_nd, float[4, 1, 2, 2] roi_align) {
            gather = Gather (x, i)
            gather_elements = GatherElements (x, i)
            gather_nd = GatherND (x, i)
            scatter_elements = ScatterElements <reduction = "add"> (x, i, pairs)
            scatter_nd = ScatterND (x, i, singles)
            roi_align = RoiAlign <output_height = 2, output_width = 2> (images, boxes, j)
        }"""
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
    network = prepare(model)
    got, expected = (
        network.run({**inputs, **{key: np.array(at) for key, at in indices.items()}})
        for indices in (far, near)
    )
    for output, *pair in zip(model.graph.output, got, expected, strict=True):
        np.testing.assert_array_equal(*pair, err_msg=output.name)


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


def test_a_single_node_is_computed():
    node = onnx.helper.make_node("Split", ["x"], ["first", "", "last"], num_outputs=3)
    first, last = run_node(node, [np.arange(6, dtype=np.float32)])
    np.testing.assert_array_equal([first, last], [[0, 1], [4, 5]])


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
    got = answers(import_model(proto, {}).module, list(model.inputs.values()))
    expected = onnxruntimes_numbers(proto, model.inputs)
    assert differences({"lstm": model}, got, expected) == {}


_SEVEN = np.ones(7, np.float32)
_IMAGE = np.ones((1, 2, 4, 4), np.float32)
_SPLIT = "outputs cannot be parts of"


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (one("Dropout", [_SEVEN], np.float32(0.5), np.asarray(True)), "training mode"),
        (one("AveragePool", [_IMAGE], kernel_shape=[6, 2]), "a window is larger than the image"),
        (one("Split", [_SEVEN], [2, 2], outputs=2), f"2 {_SPLIT} 2, 2 of the 7 .* axis 0"),
        (one("Split", [_SEVEN], [9, -2], outputs=2), f"2 {_SPLIT} 9, -2 of the 7"),
        (one("Split", [_SEVEN], [3, 4], outputs=3), f"3 {_SPLIT} 3, 4 of the 7"),
        (one("Split", [_SEVEN], outputs=5, num_outputs=5), f"5 {_SPLIT} 2, 2, 2, 2, -1 of the 7"),
        (one("Split", [_SEVEN], outputs=2, num_outputs=7), f"2 {_SPLIT} 1, 1, 1, 1, 1, 1, 1 of"),
        (one("Split", [_SEVEN], [3, 4], outputs=2, axis=1), "no axis 1 among 1 axes"),
        (one("CumSum", [_SEVEN], np.asarray(3)), "no axis 3 among 1 axes"),
        (one("ReduceMax", [_SEVEN], [-3]), "no axis -3 among 1 axes"),
        (one("ReduceMin", [_SEVEN], [2]), "no axis 2 among 1 axes"),
        (one("ReduceSum", [_SEVEN], [2]), "ValueError: the input axis 2 is out of range"),
        (one("Gather", [_SEVEN], [2], axis=5), "no axis 5 among 1 axes"),
        (
            one("MatMulNBits", [_SEVEN], [0], [1.0], K=7, N=1, bits=3, block_size=8),
            "its weights have 3 bits",
        ),
    ],
)
def test_what_is_refused_names_its_node_and_the_reason(model, reason):
    with pytest.raises(ConfigError, match=rf"node 'the_(\w+)' \(\1\) .*: .*{reason}") as caught:
        import_model(model.proto, {})
    assert "ir.Op" not in str(caught.value)

"""Operators whose results have a size that depends on values: right sizes and right numbers."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from chameleon_core._errors import ConfigError
from chameleon_networks._backends.onnx_networks import prepare
from chameleon_networks._importers.torch.lowering.importer import torch_graph
from chameleon_networks._importers.torch.programs import export_module

from .networks import answers, arrays, wrong
from .torch_networks import of

RNG = np.random.default_rng(0)
SUPPRESS = "NonMaxSuppression <center_point_box = {}> (boxes, scores, {})"


def model(text, **weights):
    """A model of ONNX that is written as text."""
    made = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> net {text}')
    for name, array in weights.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return made


def compare(proto, *samples):
    """Compare the outputs of one compiled network with those of onnxruntime, exactly in shape."""
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    network = prepare(proto)
    sizes = []
    for inputs in samples:
        wanted = session.run(None, inputs)
        for own, other in zip(network.run(inputs), wanted, strict=True):
            assert (own.shape, own.dtype) == (other.shape, other.dtype)
            np.testing.assert_allclose(own, other, rtol=1e-6)
        sizes.append(wanted[0].shape)
    return sizes


def sparse(*shape, share=0.5, dtype="float32"):
    numbers = RNG.integers(1, 100, shape) * (RNG.random(shape) < share)
    return numbers.astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "uint8"])
def test_indices_of_numbers_that_are_not_zero(dtype):
    kinds = {"float32": "float", "int64": "int64", "bool": "bool", "uint8": "uint8"}
    proto = model(f"({kinds[dtype]}[3, 4, 5] x) => (int64[3, n] y) {{ y = NonZero (x) }}")
    shares = (0.5, 0.3, 0.0, 1.0)
    samples = [{"x": sparse(3, 4, 5, share=share, dtype=dtype)} for share in shares]
    sizes = compare(proto, *samples)
    assert sizes[2:] == [(3, 0), (3, 60)]
    assert len(set(sizes)) == len(sizes)


def boxes_of(images, count, *, has_centers):
    """Boxes that often overlap, some of which are equal, and scores with ties."""
    firsts = RNG.random((images, count, 2)) * 2
    sizes = RNG.random((images, count, 2)) + 0.1
    seconds = sizes if has_centers else firsts + sizes * RNG.choice([-1.0, 1.0], sizes.shape)
    boxes = np.concatenate([firsts, seconds], -1).astype(np.float32)
    boxes[:, 5] = boxes[:, 3]
    scores = RNG.integers(0, 20, (images, 3, count)) / np.float32(20)
    return {"boxes": boxes, "scores": scores.astype(np.float32)}


@pytest.mark.parametrize("has_centers", [False, True])
@pytest.mark.parametrize(
    ("most", "overlap", "least"), [(4, 0.3, 0.4), (30, 0.0, None), (30, 1.0, 0.0), (7, 0.5, 2.0)]
)
def test_boxes_that_overlap_no_better_one(has_centers, most, overlap, least):
    limits = {"most": np.int64(most), "overlap": np.float32(overlap)}
    if least is not None:
        limits["least"] = np.float32(least)
    node = SUPPRESS.format(int(has_centers), ", ".join(limits))
    proto = model(
        f"(float[2, 30, 4] boxes, float[2, 3, 30] scores) => (int64[n, 3] y) {{ y = {node} }}",
        **{name: np.atleast_1d(limit) for name, limit in limits.items()},
    )
    compare(proto, *(boxes_of(2, 30, has_centers=has_centers) for _ in range(3)))


@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize("kind", ["float", "int64"])
def test_distinct_numbers(is_sorted, kind):
    proto = model(
        f"({kind}[4, 6] x) => ({kind}[n] y, int64[n] first, int64[24] inverse, int64[n] counts) "
        f"{{ y, first, inverse, counts = Unique <sorted = {is_sorted}> (x) }}"
    )
    draws = [RNG.integers(-below, below + 1, (4, 6)) for below in (2, 5, 1000)]
    same = np.full((4, 6), 3)
    dtype = {"float": np.float32, "int64": np.int64}[kind]
    compare(proto, *({"x": x.astype(dtype)} for x in (*draws, same)))


@pytest.mark.parametrize("axis", ["<axis = 1>", ""])
def test_elements_that_a_computed_mask_chooses(axis):
    proto = model(
        "(float[4, 6] x, float[6] z) => (float[m, n] y) { zero = Constant <value_float = 0.0> () "
        f"chosen = Greater (z, zero) y = Compress {axis} (x, chosen) }}"
    )
    numbers = RNG.standard_normal((4, 6)).astype(np.float32)
    masks = [RNG.standard_normal(6), np.ones(6), -np.ones(6)]
    compare(proto, *({"x": numbers, "z": mask.astype(np.float32)} for mask in masks))


AFTER = {
    "Gather": "i = Transpose (at) y = GatherND (x, i)",
    "Cast": "f = Cast <to = 1> (at) y = Mul (f, f)",
    "Slice": "y = Slice (at, zero, five, one)",
    "Concat": "y = Concat <axis = 0> (at, at)",
    "MatMul": "f = Cast <to = 1> (at) t = Transpose (f) y = MatMul (t, w)",
    "ReduceSum": "y = ReduceSum <keepdims = 0> (at, zero)",
    "Softmax": "f = Cast <to = 1> (at) y = Softmax <axis = 0> (f)",
    "Reshape": "y = Reshape (at, shape)",
    "Squeeze": "a = Slice (at, zero, one, zero) y = Squeeze (a, zero)",
    "NonZero": "y = NonZero (at)",
    "Where": "low = Less (at, one) y = Where (low, at, zero)",
}
CONSTANTS = {
    "zero": np.array([0]),
    "one": np.array([1]),
    "five": np.array([5]),
    "last": np.array([-1]),
    "shape": np.array([2, 1, -1]),
    "w": RNG.standard_normal((2, 4)).astype(np.float32),
}


def indexed(text):
    return model(f"(float[3, 4] x) => (float y) {{ at = NonZero (x) {text} }}", **CONSTANTS)


@pytest.mark.parametrize("operator", list(AFTER))
def test_operators_keep_the_sizes(operator):
    proto = indexed(AFTER[operator])
    kind = onnx.TensorProto.INT64
    if "Mul" in AFTER[operator] or operator in {"Gather", "Softmax"}:
        kind = onnx.TensorProto.FLOAT
    proto.graph.output[0].type.tensor_type.elem_type = kind
    compare(proto, *({"x": sparse(3, 4, share=share)} for share in (0.5, 0.2, 0.0, 1.0)))


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        ("Shape", "y = Shape (at)"),
        ("Size", "y = Size (at)"),
        ("Slice", "y = Slice (at, zero, last, one)"),
        ("Slice", "y = Slice (at, one, five, one)"),
        ("ReduceSum", "y = ReduceSum (at, one)"),
        ("Softmax", "f = Cast <to = 1> (at) y = Softmax <axis = 1> (f)"),
        ("Concat", "y = Concat <axis = 1> (at, at)"),
        ("Gather", "y = Gather <axis = 1> (at, zero)"),
        ("Squeeze", "y = Squeeze (at)"),
        ("Slice", "y = Slice (at, zero, zero, zero)"),
        ("CumSum", "y = CumSum (at, one)"),
        ("Add", "b = NonZero (w) y = Add (at, b)"),
        ("MatMul", "f = Cast <to = 1> (at) t = Transpose (f) y = MatMul (f, t)"),
        ("Reshape", "f = Constant <value_ints = [-1]> () y = Reshape (at, f)"),
        ("ScatterND", "i = Transpose (at) y = ScatterND (x, i, x)"),
    ],
)
def test_operators_that_would_mix_elements_are_refused(operator, text):
    with pytest.raises(ConfigError, match=rf"{operator}.* is known only when the network runs"):
        prepare(indexed(text)).run({"x": sparse(3, 4)})


def _selected(x):
    rows = x[x[:, 0] > 0]
    return rows.softmax(1), rows @ torch.ones(5, 2) + 1, rows * (x + 1)[x[:, 0] > 0]


def _chosen_twice(x):
    rows = x[x[:, 0] > -0.5]
    places = torch.nonzero(rows[:, 1] > 0).squeeze(1)
    return rows[places], rows[rows[:, 2] > 0] + 1


TORCH = {
    "indices": (lambda x: torch.nonzero(x > 0), (3, 5)),
    "indices of each axis": (lambda x: torch.nonzero(x > 0, as_tuple=True), (3, 4, 5)),
    "where": (lambda x: torch.where(x > 0)[1] + 1, (3, 5)),
    "elements": (lambda x: x[x > 0] * 2, (3, 5)),
    "rows": (_selected, (7, 5)),
    "columns": (lambda x: x[:, x[0] > 0], (3, 9)),
    "pairs": (lambda x: x[:, x[0] > 0].exp(), (3, 2, 4)),
    "masked": (lambda x: torch.masked_select(x, x[:1] > 0), (3, 5)),
    "distinct": (lambda x: torch.unique((x * 2).round()), (4, 6)),
    "distinct with inverse": (
        lambda x: torch.unique((x * 2).round(), return_inverse=True, return_counts=True),
        (4, 6),
    ),
    "runs": (lambda x: torch.unique_consecutive((x > 0).int(), return_counts=True), (20,)),
    "of chosen ones": (_chosen_twice, (9, 5)),
    "none": (lambda x: x[x > 100], (3, 5)),
    "all": (lambda x: x[x < 100], (3, 5)),
}


def test_torch_chooses_elements():
    cases = {
        name: lambda function=function, shape=shape: of(function, torch.randn(shape))
        for name, (function, shape) in TORCH.items()
    }
    assert wrong(cases) == {}


def test_a_scalar_has_no_axis_to_cut():
    network, inputs = of(lambda x: torch.nonzero(x[0] > 0), torch.randn(6))
    with pytest.raises(ConfigError, match="operator nonzero "):
        torch_graph(export_module(network, inputs, "case").program)


@pytest.mark.parametrize(
    ("operator", "function"),
    [
        ("sum", lambda x: x[x > 0].sum()),
        ("mul", lambda x: x * x[x > 0].shape[0]),
        ("slice", lambda x: x[x > 0][:-1]),
        ("distinct", lambda x: torch.unique_consecutive(x[x > 0])),
        ("cat", lambda x: torch.cat([x[x > 0], x])),
        ("squeeze", lambda x: x[x > 0].squeeze()),
        ("slice", lambda x: x[x > 0].unsqueeze(1)[:, :0]),
        ("sort", lambda x: x[x > 0].sort().values),
    ],
)
def test_what_mixes_elements_is_refused_with_its_line(operator, function):
    network, inputs = of(function, torch.randn(6))
    reason = rf"operator {operator}.* \(\w+.py:\d+: .* is known only when the network runs"
    with pytest.raises(ConfigError, match=reason):
        torch_graph(export_module(network, inputs, "case").program)


@pytest.fixture(name="suppress")
def _suppress():
    """The operator of torchvision, which need not be installed."""
    if not hasattr(torch.ops.torchvision, "nms"):
        library = torch.library.Library("torchvision", "DEF")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.impl("nms", suppressed, "CPU")
        torch.library.register_fake("torchvision::nms", _fake_suppressed, lib=library)
        _LIBRARIES.append(library)
    return torch.ops.torchvision.nms


_LIBRARIES = []


def _fake_suppressed(boxes, scores, overlap):
    size = torch.library.get_ctx().new_dynamic_size()
    return boxes.new_empty(size, dtype=torch.int64)


def suppressed(boxes, scores, overlap):
    """torchvision's kernel for the CPU."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept = []
    for one in scores.sort(descending=True, stable=True).indices.tolist():
        for other in kept:
            low = torch.maximum(boxes[one, :2], boxes[other, :2])
            high = torch.minimum(boxes[one, 2:], boxes[other, 2:])
            common = (high - low).clamp(min=0).prod()
            if common / (areas[one] + areas[other] - common) > overlap:
                break
        else:
            kept.append(one)
    return torch.tensor(kept, dtype=torch.int64)


def test_boxes_are_suppressed_as_by_torchvision(suppress):
    def network(boxes, scores):
        kept = suppress(boxes, scores, 0.4)
        good = scores > 0.3
        some, own = boxes[good], scores[good]
        others = suppress(some, own, 0.5)
        return kept, boxes[kept], scores[kept], some[others], own[others]

    firsts = torch.rand(40, 2)
    boxes, scores = torch.cat([firsts, firsts + torch.rand(40, 2)], 1), torch.rand(40)
    module, inputs = of(network, boxes, scores)
    graph = torch_graph(export_module(module, inputs, "case").program)
    got = answers(graph.module, [array.numpy() for array in inputs])
    wanted = arrays(network(boxes, scores))
    assert 1 < len(wanted[0]) < len(boxes)
    for own, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(own, other)

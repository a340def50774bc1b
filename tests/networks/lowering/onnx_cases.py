"""Tiny ONNX models, one operator each, with inputs to check them on."""

from collections.abc import Mapping
from functools import reduce
from typing import Any

import attrs
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import compose, helper, numpy_helper

Array = NDArray[Any]


@attrs.frozen(kw_only=True, eq=False)
class Model:
    """One node.

    Attributes:
        kind: its operator.
        inputs: of the network, by name.
        constants: further inputs of the node, by name; None for one that is left out.
        outputs: how many the node has.
        attributes: of the node.
    """

    kind: str
    inputs: Mapping[str, Array]
    constants: Mapping[str, Array | None] = attrs.field(factory=dict)
    outputs: int = 1
    attributes: Mapping[str, Any] = attrs.field(factory=dict)
    opset: int = 18

    @property
    def proto(self):
        """The model as ONNX has it."""
        names = [*self.inputs, *(n if one is not None else "" for n, one in self.constants.items())]
        outputs = [f"y{place}" for place in range(self.outputs)]
        node = helper.make_node(
            self.kind, names, outputs, name=f"the_{self.kind}", **self.attributes
        )
        graph = helper.make_graph(
            [node],
            "one",
            [_value(name, one) for name, one in self.inputs.items()],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            [numpy_helper.from_array(v, n) for n, v in self.constants.items() if v is not None],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        if "domain" in self.attributes:
            opsets.append(helper.make_opsetid(self.attributes["domain"], 1))
        made = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        return onnx.shape_inference.infer_shapes(made)


def together(models):
    """Models of one version beside each other as one, and its inputs; names begin with places."""
    protos = [compose.add_prefix(one.proto, f"at{place}_") for place, one in enumerate(models)]
    inputs = {
        f"at{place}_{name}": value
        for place, one in enumerate(models)
        for name, value in one.inputs.items()
    }
    return reduce(lambda one, two: compose.merge_models(one, two, io_map=[]), protos), inputs


def by_version(models):
    """Tables of models by the version of ONNX's operators, since one network has one version."""
    versions = sorted({model.opset for model in models.values()})
    return {v: {name: m for name, m in models.items() if m.opset == v} for v in versions}


def _value(name, array):
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
    )


def _r(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _i(below, *shape):
    return np.random.default_rng(sum(shape)).integers(0, below, shape)


def _b(*shape):
    return _i(9, *shape).astype(np.int8)


def _array(value):
    """An array as it is, and numbers as one of int64 or float32."""
    if value is None or isinstance(value, np.ndarray):
        return value
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def one(kind, inputs, *constants, **attributes):
    """A model of one node; ``outputs`` says how many it has."""
    outputs, opset = attributes.pop("outputs", 1), attributes.pop("opset", 18)
    return Model(
        kind=kind,
        opset=opset,
        inputs={f"x{place}": _array(one) for place, one in enumerate(inputs)},
        constants={f"c{place}": _array(one) for place, one in enumerate(constants)},
        outputs=outputs,
        attributes=attributes,
    )


_LSTM = {"hidden_size": 5, "outputs": 3}
_GRU = {"hidden_size": 5, "outputs": 2}

_FAR = (np.nan, np.inf, -np.inf, 3e38, -1e30, 1e4, -1e4, 1.0, -1.0, 2.5)
"""Coordinates at the edges of an image, far from it, and nowhere."""


def _samples(method, padding, align_corners):
    """Pixels, one of which is infinite, at places with a far coordinate each."""
    pixels, grid = _r(1, 2, 5, 6), np.tanh(_r(1, 2, len(_FAR), 2))
    pixels[0, 1, 4, 5] = np.inf
    for axis in range(2):
        grid[0, axis, :, axis] = _FAR
    options = {"mode": method, "padding_mode": padding, "align_corners": align_corners}
    return one("GridSample", [pixels, grid], **options)


CASES = {
    "conv 1d": one("Conv", [_r(1, 3, 9)], _r(4, 3, 3), pads=[1, 1], strides=[2]),
    "conv 3d": one("Conv", [_r(1, 2, 4, 5, 5)], _r(3, 2, 3, 3, 3)),
    "transposed to less than strides": one(
        "ConvTranspose", [_r(1, 3, 4, 2)], _r(3, 2, 3, 2), strides=[2, 3], auto_pad="SAME_UPPER"
    ),
    "logarithms of whole numbers": one("ReduceLogSum", [_i(9, 3, 5) + 1], [1]),
    "transposed padded": one(
        "ConvTranspose",
        [_r(1, 4, 5, 6)],
        *(_r(4, 3, 3, 3), _r(3)),
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        output_padding=[1, 1],
    ),
    "resize of one axis, half pixels": one(
        "Resize",
        [_r(5)],
        None,
        [0.7],
        opset=13,
        coordinate_transformation_mode="tf_half_pixel_for_nn",
    ),
    "few rows of a constant": one("GatherElements", [], _r(64, 3), np.ones((2, 3), "q")),
    "resize of version 11, to sizes": one(
        "Resize", [_r(1, 3, 4, 5)], _r(0), _r(0), [1, 3, 7, 9], mode="linear", opset=11
    ),
    "instance norm": one("InstanceNormalization", [_r(2, 3, 5, 4)], _r(3), _r(3)),
    "layer norm": one("LayerNormalization", [_r(2, 3, 6)], _r(6), _r(6)),
    "batch norm": one(
        "BatchNormalization", [_r(2, 3, 4, 4)], _r(3), _r(3), _r(3), np.abs(_r(3)) + 1
    ),
    "lstm": one("LSTM", [_r(4, 2, 3)], _r(1, 20, 3), _r(1, 20, 5), _r(1, 40), **_LSTM),
    "lstm both ways": one(
        "LSTM", [_r(4, 2, 3)], _r(2, 20, 3), _r(2, 20, 5), direction="bidirectional", **_LSTM
    ),
    "gru": one(
        "GRU", [_r(4, 2, 3)], _r(1, 15, 3), _r(1, 15, 5), _r(1, 30), linear_before_reset=1, **_GRU
    ),
    "lstm in one kernel": one(
        "LSTM",
        [_r(4, 2, 3)],
        _r(2, 64, 3),
        _r(2, 64, 16),
        _r(2, 128),
        hidden_size=16,
        direction="bidirectional",
        outputs=3,
    ),
    "gru in one kernel": one(
        "GRU",
        [_r(4, 3, 5)],
        _r(1, 24, 5),
        _r(1, 24, 8),
        _r(1, 48),
        hidden_size=8,
        linear_before_reset=1,
        direction="reverse",
        outputs=2,
    ),
    "one hot": one("OneHot", [_i(5, 2, 3)], [5], [0.25, 1.5], axis=1),
    "one hot of negative places": one("OneHot", [[[-1, 2]]], [4], [0, 1]),
    "gather": one("Gather", [_r(5, 4), _i(5, 2, 3)], axis=0),
    "gather negative": one("Gather", [_r(5, 4)], [-1, 0, -2], axis=1),
    "gather elements": one("GatherElements", [_r(3, 4), _i(4, 3, 2)], axis=1),
    "gather nd": one("GatherND", [_r(3, 4, 2)], [[0, 1], [2, 3]]),
    "scatter nd": one("ScatterND", [_r(4, 3), [[0], [2]], _r(2, 3)]),
    "scatter elements": one(
        "ScatterElements", [_r(3, 4), [[0, 2], [1, 3], [0, 1]], _r(3, 2)], axis=1
    ),
    "top k": one("TopK", [_r(2, 7)], [3], axis=1, outputs=2),
    "cumulative sum": one("CumSum", [_r(2, 5)], 1),
    "einsum": one("Einsum", [_r(1, 2, 3, 4), _r(1, 2, 5, 4)], equation="bhid,bhjd->bhij"),
    "where": one("Where", [_r(3, 4) > 0, _r(3, 4), _r(3, 4)]),
    "upper triangle": one("Trilu", [_r(4, 5)], 1, upper=1),
    "power": one("Pow", [_r(3, 4)], 3.0),
    "power whole": one("Pow", [_r(3, 4)], 2),
    "equal booleans": one("Equal", [_r(3, 4) > 0, _r(3, 4) > 1]),
    "squeeze": one("Squeeze", [_r(1, 3, 1, 4)]),
    "split": one("Split", [_r(2, 6)], [2, 4], axis=1, outputs=2),
    "slice": one("Slice", [_r(4, 6)], [1, 0], [4, 6], None, [1, 2]),
    "pad": one("Pad", [_r(1, 2, 4, 4)], [0, 0, 1, 1] * 2, mode="reflect"),
    "depth to space": one("DepthToSpace", [_r(1, 8, 3, 4)], blocksize=2, mode="CRD"),
    "space to depth": one("SpaceToDepth", [_r(1, 2, 6, 4)], blocksize=2),
    "largest place": one("ArgMax", [_r(3, 4)], axis=1, keepdims=0),
    "mean": one("ReduceMean", [_r(2, 3, 4)], [1]),
    "log of sum": one("ReduceLogSumExp", [_r(2, 3, 4)], [-1]),
    "logarithm of infinite sums": one(
        "ReduceLogSumExp",
        [np.array([[-np.inf] * 2, [np.inf, 1], [-np.inf, 1], [200, 201]], np.float32)],
        [1],
        keepdims=0,
    ),
    "pool with pads before": one(
        "MaxPool", [_r(1, 3, 8, 9)], kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_LOWER"
    ),
    "lstm with one gate less": one(
        "LSTM", [_r(3, 2, 4)], _r(1, 20, 4), _r(1, 20, 5), input_forget=1, **_LSTM
    ),
    "pool": one("MaxPool", [_r(1, 3, 8, 8)], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "average pool": one("AveragePool", [_r(1, 3, 8, 8)], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "global pool": one("GlobalAveragePool", [_r(1, 3, 5, 4)]),
    "softmax": one("Softmax", [_r(2, 3, 4)], axis=1),
    "product": one("Gemm", [_r(3, 4)], _r(5, 4), _r(5), transB=1, alpha=0.5),
    "expand": one("Expand", [_r(3, 1)], [2, 3, 4]),
    "tile": one("Tile", [_r(2, 3)], [2, 2]),
    "activations": one("HardSwish", [_r(3, 4)]),
    "prelu": one("PRelu", [_r(1, 3, 4, 4)], _r(3, 1, 1)),
    "whole division": one("Div", [_i(9, 3, 4)], 2),
    "remainder": one("Mod", [_i(9, 3, 4)], 4),
    "clip": one("Clip", [_r(3, 4)], -0.5, 0.5),
    "clip of version 6 without limits": one(
        "Clip", [[-np.inf, -1.0, np.nan, np.inf]], opset=6, max=0.5
    ),
    **{
        f"cropped and then padded by {mode}": one(
            "Pad", [_r(2, 6, 7)], [0, -4, 1, 0, 1, -3], mode=mode, opset=19
        )
        for mode in ("reflect", "wrap")
    },
    "grid sample": one("GridSample", [_r(1, 3, 5, 6), np.tanh(_r(1, 4, 3, 2))]),
    **{
        f"grid sample {method} {padding} {align}": _samples(method, padding, align)
        for method in ("bilinear", "nearest", "bicubic")
        for padding, align in [("zeros", 0), ("border", 1), ("reflection", 0)]
    },
    "lstm with computed weights": one("LSTM", [_r(3, 2, 4), _r(1, 20, 4), _r(1, 20, 5)], **_LSTM),
    "lstm of any kind": one(
        "LSTM",
        [_r(3, 2, 4)],
        _r(2, 20, 4),
        _r(2, 20, 5),
        _r(2, 40),
        np.asarray([3, 1], np.int32),
        _r(2, 2, 5),
        _r(2, 2, 5) * 0.5,
        _r(2, 15),
        **_LSTM,
        direction="bidirectional",
        clip=0.5,
        activations=["HardSigmoid", "Elu", "Softsign", "Sigmoid", "Affine", "ScaledTanh"],
        activation_alpha=[0.3, 0.9, 0.8, 0.7],
        activation_beta=[0.4, 0.1, 1.2],
    ),
    "gru of several lengths": one(
        "GRU",
        [_r(4, 3, 2)],
        _r(1, 15, 2),
        _r(1, 15, 5),
        None,
        np.asarray([2, 4, 1], np.int32),
        direction="reverse",
        **_GRU,
    ),
    "rnn": one("RNN", [_r(3, 2, 4)], _r(1, 5, 4), _r(1, 5, 5), clip=0.7, **_GRU),
    "transposed of computed filters": one(
        "ConvTranspose", [_r(1, 4, 5, 6), _r(4, 3, 2, 2)], strides=[2, 1], output_padding=[1, 0]
    ),
    "largest of infinite numbers": one("ReduceMax", [np.full((2, 3), -np.inf, np.float32)], [1]),
    "slice from the back": one("Slice", [_r(5, 6)], [-1, 5], [-9, 0], None, [-2, -3]),
    "power of whole numbers": one("Pow", [_i(9, 3, 4), _i(5, 3, 4)]),
    "whole numbers of the largest": one("ReduceMax", [_i(9, 3, 4)], [0]),
    "normalised with its mean": one(
        "LayerNormalization", [_r(2, 3, 6)], _r(3, 6), axis=1, outputs=3
    ),
    "determinants": one("Det", [_r(3, 4, 4)]),
    "blocks to an image": one("Col2Im", [_r(1, 18, 12)], [5, 6], [3, 3]),
    "quantized by the range of zeros": one(
        "DynamicQuantizeLinear", [np.zeros((2, 3), np.float32)], outputs=3
    ),
    "top of version 10": one("TopK", [_r(2, 7)], [3], outputs=2, opset=10),
    "top of version 9": one("TopK", [_r(2, 7)], axis=1, k=3, outputs=2, opset=9),
    "slice back from before all": one("Slice", [_r(5)], [-9], [-20], None, [-1]),
}


def _regions(mode, way):
    """Regions of an image that is smaller than what they are given in, beyond its edges too."""
    regions = [[0, 0, 30, 40], [8, 12, 60, 60], [-8, 4, 20, 70], [5, 5, 5.5, 5.2]]
    return one(
        "RoiAlign",
        [_r(2, 3, 16, 20), np.asarray(regions, np.float32), np.asarray([0, 1, 1, 0])],
        output_height=3,
        output_width=2,
        sampling_ratio=2,
        spatial_scale=0.25,
        mode=mode,
        coordinate_transformation_mode=way,
    )


_HOLES = _r(2, 3, 8, 9)
_HOLES[_HOLES > 1.5] = np.nan
_HOLES[_HOLES < -1.0] = -np.inf

FOUND = {
    "vectors of hyperbolic functions": one("Sinh", [np.linspace(-4, 4, 33, dtype="f")]),
    "mirrored alone": one("Pad", [_r(3, 1)], [0, 1, 0, 1], mode="reflect"),
    "batch enlarged": one("Resize", [_r(1, 2, 3, 4)], None, [2, 1, 1, 1.5]),
    "two axes enlarged": one("Resize", [_r(3, 4)], None, [2, 0.5]),
    "enlarged to nothing": one("Resize", [_r(1, 1, 1, 3)], None, [1, 1, 0.5, 2]),
    "interpolated in 64 bits": one(
        "Resize", [_r(1, 1, 3, 4).astype("d")], None, [1, 1, 1.5, 1.5], mode="linear"
    ),
    "mean of whole numbers": one("ReduceMean", [_i(9, 3, 5) - 6], [1]),
    "norm of whole numbers": one("ReduceL2", [_i(9, 3, 5)], [1]),
    "place among least numbers": one("ArgMax", [np.full((2, 3), -np.inf, np.float32)], axis=1),
    "sign of no number": one("Sign", [np.array([np.nan, -0.0, 0.0, -3.0, np.inf], np.float32)]),
    "sign without signs": one("Sign", [_i(3, 3, 4).astype(np.uint8)]),
    "largest of no numbers": one("ReduceMax", [np.zeros((2, 0, 3), np.float16)], [1]),
    "least of no numbers": one("ReduceMin", [np.zeros((2, 0), np.float16)], [1]),
    "nothing in an order": one("Hardmax", [np.zeros((2, 0), np.float32)]),
    "nothing joined": one("Concat", [np.zeros((2, 0), "f"), np.zeros((3, 0), "f")], axis=0),
    "nothing expanded to": one("Expand", [_r(1, 3)], [0, 3]),
    "nothing scattered": one(
        "ScatterElements", [_r(3, 4), np.zeros((0, 4), np.int64), np.zeros((0, 4), "f")]
    ),
    "celu of a number": one("Celu", [-0.7], alpha=0.5),
    "largest of several": one("Max", [_r(2, 1, 3), _r(4, 1), _r(3)]),
    "normalised in 64 bits": one("LayerNormalization", [_r(3, 4).astype("d")], _r(4).astype("d")),
    "normalised by one scale": one("LayerNormalization", [_r(3, 4)], _r(1), axis=0),
    "part of each head turned": one(
        "RotaryEmbedding",
        [_r(2, 3, 32), _r(2, 3, 2), _r(2, 3, 2)],
        num_heads=4,
        rotary_embedding_dim=4,
        opset=23,
    ),
    "nothing reduced": one(
        "ReduceL1", [_r(2, 3)], np.asarray([], np.int64), noop_with_empty_axes=1
    ),
    "places of the largest": one(
        "MaxPool",
        [_r(2, 3, 9, 10)],
        kernel_shape=[3, 2],
        strides=[2, 3],
        pads=[1, 0, 1, 1],
        storage_order=1,
        ceil_mode=1,
        outputs=2,
    ),
    "deformed": one(
        "DeformConv",
        [_r(2, 4, 7, 8), _r(6, 2, 3, 2), _r(2, 24, 4, 7), _r(6), _r(2, 12, 4, 7)],
        kernel_shape=[3, 2],
        pads=[1, 0, 1, 0],
        strides=[2, 1],
        group=2,
        offset_group=2,
        opset=19,
    ),
    **{
        f"regions by {mode}, {way}": _regions(mode, way)
        for mode in ("avg", "max")
        for way in ("half_pixel", "output_half_pixel")
    },
    "scattered into more": one(
        "ScatterElements", [_r(4, 5, 3), _i(4, 2, 3, 2), _r(2, 3, 2)], reduction="add"
    ),
    "split into one": one("Split", [_r(2, 3)], [2]),
    "row of places": one("AffineGrid", [_r(1, 2, 3)], [1, 3, 1, 3], align_corners=1, opset=20),
    "vector of whole numbers": one("MatMulInteger", [_b(4)], _b(4, 2)),
    "variance of single numbers": one("MeanVarianceNormalization", [_r(1, 1, 33)], axes=[0]),
    "channels about each, in pairs": one("LRN", [_r(5, 5, 3, 3)], size=4, alpha=0.5),
    "one row of two, corners aligned": one(
        "Resize",
        [_r(1, 2, 2, 3)],
        None,
        None,
        [1, 2, 1, 5],
        mode="linear",
        coordinate_transformation_mode="align_corners",
    ),
    "largest scattered": one(
        "ScatterND", [_r(3, 4, 2), [[1, -1], [0, 2], [1, 3]], _r(3, 2)], reduction="max"
    ),
    "divided by zero": one("Div", [_r(5)], np.zeros((), np.float32)),
    "recurrent in 64 bits": one(
        "GRU",
        [_r(2, 1, 3).astype("d")],
        _r(1, 6, 3).astype("d"),
        _r(1, 6, 2).astype("d"),
        hidden_size=2,
        outputs=2,
    ),
    "determinant in 64 bits": one("Det", [_r(2, 3, 3).astype("d")]),
    "powers of more digits than float64 has": one("Pow", [[3, -3, 2, 0, 7]], [39]),
    "infinity below a threshold": one("ThresholdedRelu", [[-np.inf, 0.5, np.inf]]),
    "order of short numbers": one("TopK", [_i(999, 3, 9).astype(np.uint16)], [4], outputs=2),
    "top one in any order": one("TopK", [_r(2, 7)], [1], outputs=2, sorted=0),
    "padding around least numbers": one(
        "MaxPool", [np.full((1, 1, 3, 3), -np.inf, np.float32)], kernel_shape=[2, 2], pads=[1] * 4
    ),
    "largest of NaN": one("ReduceMax", [_HOLES], [1, 3]),
    "least of NaN": one("ReduceMin", [_HOLES], [2], keepdims=0),
    "place of the largest NaN": one("ArgMax", [_HOLES], axis=3),
    "place of the least NaN": one("ArgMin", [_HOLES], axis=1, keepdims=0),
    "order of NaN": one("TopK", [_HOLES[:, :, :7, 3]], [7], outputs=2),
    "order of large numbers": one(
        "TopK", [np.array([1, 2**63, 0, 2**64 - 1], "Q")], [3], outputs=2
    ),
    "whole pool of NaN": one("GlobalMaxPool", [_HOLES]),
    "mean of nothing": one("Mean", [np.zeros((2, 0, 8), "e")] * 2),
    "resize of int64": one(
        "Resize", [np.arange(24).reshape(1, 4, 6) ** 2 % 37], None, [1, 1.5, 1.5], mode="linear"
    ),
    "batches of int8": one(
        "Resize", [(_r(4, 1, 4, 3) * 9).astype("b")], None, [0.5, 2, 1, 1], mode="linear"
    ),
    "columns in 64 bits": one("Col2Im", [_r(1, 4, 4).astype("d")], [3, 3], [2, 2]),
}
"""Found by random graphs and attributes; onnxruntime does not compute all of them."""

_TABLES = [
    function(np.outer(np.arange(9), [1, 0.1])).astype(np.float32) for function in (np.cos, np.sin)
]
_MICROSOFT = {"domain": "com.microsoft"}

FUSED = {
    "norm of a sum": one(
        *("SkipLayerNormalization", [_r(2, 3, 8), _r(3, 8)], _r(8), _r(8), _r(8)), **_MICROSOFT
    ),
    "norm of a sum, which is read": one(
        "SkipLayerNormalization", [_r(2, 3, 8)] * 2, _r(8), outputs=4, **_MICROSOFT
    ),
    "simplified norm of a sum": one(
        *("SkipSimplifiedLayerNormalization", [_r(2, 3, 8)] * 2, _r(8), _r(8)), **_MICROSOFT
    ),
    "quick gelu": one("QuickGelu", [_r(2, 3)], **_MICROSOFT),
    "product of transposed": one(
        "FusedMatMul", [_r(2, 4, 3), _r(2, 5, 4)], transA=1, transB=1, alpha=0.5, **_MICROSOFT
    ),
    "rotary": one("RotaryEmbedding", [_r(2, 3, 8), _i(9, 2, 3)], *_TABLES, **_MICROSOFT),
    "rotary interleaved, by heads": one(
        "RotaryEmbedding", [_r(2, 2, 3, 4), [4]], *_TABLES, interleaved=1, **_MICROSOFT
    ),
    "rotary in part": one(
        *("RotaryEmbedding", [_r(2, 3, 16), _i(9, 2, 3)], *_TABLES),
        **_MICROSOFT,
        num_heads=2,
        rotary_embedding_dim=4,
    ),
}
"""Operators that only onnxruntime has."""

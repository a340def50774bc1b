"""Products, quantization, signals, losses and elementwise operators of ONNX, drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from attribute_draws import WHOLES, Draw, Families, Known, Operator, onnx_type
from attribute_layers import convolution


def _einsum(d: Draw) -> Operator:
    extents = {letter: d.whole(1, 4) for letter in "abcde"}
    terms, dots = [], d.yes(0.2)
    for _ in range(d.one(1, 2, 2, 3)):
        letters = [d.one(*"abcde") for _ in range(d.whole(1, 3))]
        terms.append("".join(letters) if d.yes(0.15) else "".join(dict.fromkeys(letters)))
    shapes = [[extents[letter] for letter in term] for term in terms]
    used = sorted(set("".join(terms)))
    kept = "".join(str(one) for one in d.rng.permutation(used)[: d.whole(0, len(used))])
    if dots:
        terms, shapes = [f"...{one}" for one in terms], [[2, *one] for one in shapes]
        kept = f"...{kept}"
    left = d.one(",", ", ").join(terms)
    equation = left if d.yes(0.15) else f"{left}{d.one('->', ' -> ')}{kept}"
    kind = d.number("int32")
    return Operator([d.real(shape, kind) for shape in shapes], {"equation": equation})


def _gemm(d: Draw) -> Operator:
    (m, k, n), kind = d.wholes(3, 1, 5), d.number("int32")
    over, under = d.whole(0, 1), d.whole(0, 1)
    a, b = d.real([k, m] if over else [m, k], kind), d.real([n, k] if under else [k, n], kind)
    c = d.some(d.real(d.one([], [1], [n], [m, 1], [1, n], [m, n]), kind))
    given = d.given("alpha=0.5|2.0 beta=0.5|2.0")
    return Operator([a, b, c], {**given, "transA": over, "transB": under})


def _products(d: Draw) -> tuple[list[int], list[int]]:
    m, k, n = d.wholes(3, 1, 5)
    batch = d.wholes(d.whole(0, 2), 1, 3)
    left, right = [*d.part(batch), m, k], [*d.part(batch), k, n]
    return (left, [k]) if d.yes(0.15) else ([k], right) if d.yes(0.15) else (left, right)


def _matmul(d: Draw) -> Operator:
    kind = d.number("int32", "int64")
    return Operator([d.real(shape, kind) for shape in _products(d)])


def _bytes(d: Draw, shape: Sequence[int], kind: str) -> Any:
    info = np.iinfo(kind)
    return d.rng.integers(info.min, info.max + 1, shape).astype(kind)


def _integer_matmul(d: Draw) -> Operator:
    (left, right), kinds = _products(d), [d.one("int8", "uint8") for _ in range(2)]
    rows = d.one([], [left[-2]]) if len(left) > 1 else []
    columns = d.one([], [right[-1]]) if len(right) > 1 else []
    zeros = [d.some(_bytes(d, *pair)) for pair in zip((rows, columns), kinds, strict=True)]
    return Operator([_bytes(d, left, kinds[0]), _bytes(d, right, kinds[1]), *zeros])


def _integer_conv(d: Draw) -> Operator:
    made = convolution(d)
    kinds = d.one("int8", "uint8"), d.one("int8", "uint8")
    x, w = (_bytes(d, made.inputs[a].shape, kinds[a]) for a in range(2))
    zeros = d.some(_bytes(d, [], kinds[0])), d.some(_bytes(d, d.one([], [len(w)]), kinds[1]))
    return Operator([x, w, *zeros], made.attributes)


def _quantized_conv(d: Draw) -> Operator:
    made = convolution(d)
    kinds = d.one(("int8", "int8"), ("uint8", "uint8"), ("uint8", "int8"))
    x, w = (_bytes(d, made.inputs[a].shape, kinds[a]) for a in range(2))
    scales = d.one([], [len(w)])
    zero = np.zeros(scales, kinds[1]) if kinds[1] == "int8" else _bytes(d, scales, kinds[1])
    bias = d.some(d.rng.integers(-500, 500, len(w)).astype(np.int32))
    last = [d.scales([]) * np.float32(64), _bytes(d, [], kinds[0]), bias]
    quantized = [x, d.scales([]), _bytes(d, [], kinds[0]), w, d.scales(scales), zero]
    return Operator([*quantized, *last], made.attributes)


def _quantized_matmul(d: Draw) -> Operator:
    kinds = [d.one("int8", "uint8") for _ in range(3)]
    inputs = []
    for shape, kind in zip(_products(d), kinds, strict=False):
        inputs += [_bytes(d, shape, kind), d.scales([]), _bytes(d, [], kind)]
    return Operator([*inputs, d.scales([]) * np.float32(64), _bytes(d, [], kinds[2])])


_QUANTIZED = ("int8", "uint8", "int8", "uint8", "int16", "uint16", "int4", "uint4", "float8_e4m3fn")


def _parameters(d: Draw, shape: Sequence[int]) -> tuple[list[int], dict[str, Any]]:
    """The shape of scales, and the attributes that go with it."""
    axis, how = d.axis(shape), d.one("tensor", "axis", "block")
    block = d.whole(1, shape[axis])
    extents = list(shape)
    extents[axis] = -(-shape[axis] // block)
    if how == "block":
        return extents, {"axis": axis, "block_size": block}
    return ([shape[axis]], {"axis": axis}) if how == "axis" else ([], {})


def _quantize(d: Draw) -> Operator:
    shape, kind = d.wholes(d.whole(1, 4), 1, 5), d.one(*_QUANTIZED)
    extents, given = _parameters(d, shape)
    x = (d.real(shape) * np.float32(4)).astype(d.one("float32", "float32", "float16"))
    zero = np.asarray(d.rng.integers(0, 5, extents)).astype(kind)
    zero = np.zeros(extents, kind) if kind.startswith("float") else zero
    named = d.yes(0.3)
    given["output_dtype"] = onnx_type(kind) if named else None
    return Operator([x, d.scales(extents).astype(x.dtype), None if named else zero], given)


def _dequantize(d: Draw) -> Operator:
    shape, kind = d.wholes(d.whole(1, 4), 1, 5), d.one(*_QUANTIZED, "int32")
    extents, given = _parameters(d, shape)
    low = -8 if kind.startswith(("int", "float")) else 0
    x, zero = (d.rng.integers(low, 8, n).astype(kind) for n in (shape, extents))
    zero = d.some(np.zeros(extents, kind) if kind in {"int32", "float8_e4m3fn"} else zero)
    return Operator([x, d.scales(extents).astype(d.one("float32", "float16")), zero], given)


_CASTS = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    *WHOLES,
    "bool",
    "int4",
)


def _cast(d: Draw, like: bool = False) -> Operator:
    source, kind = d.one(*_CASTS), d.one(*_CASTS)
    low, high = (0 if "u" in source + kind or "bool" in source + kind else -8), 7
    x = np.asarray(d.rng.uniform(low, high, d.shape(0, 3))).astype(source)
    if like:
        return Operator([x, np.zeros([1], kind)])
    return Operator([x], {"to": onnx_type(kind), "saturate": d.some(d.whole(0, 1), 0.2)})


def _fourier(d: Draw) -> Operator:
    shape = [*d.wholes(d.whole(2, 3), 1, 6), d.one(1, 2)]
    axis = d.one(*range(len(shape) - 1))
    given = d.given("inverse=0:1 onesided=0:1")
    length = d.some(Known(d.whole(1, 8)))
    known = Known(axis - len(shape) * d.yes())
    return Operator([d.real(shape, d.one("float32", "float64")), length, known], given)


def _short_fourier(d: Draw) -> Operator:
    length, frame = d.whole(6, 12), d.whole(2, 6)
    x = d.real([d.whole(1, 2), length, 1])
    window = d.some(d.real([frame]))
    size = Known(frame) if window is None or d.yes() else None
    given = {"onesided": d.some(d.whole(0, 1))}
    return Operator([x, Known(d.whole(1, 3)), window, size], given)


def _loss(d: Draw, log: bool) -> Operator:
    classes, rest = d.whole(2, 4), d.wholes(d.whole(0, 2), 1, 3)
    batch = d.whole(1, 3)
    ignored = d.some(d.whole(-1, classes - 1))
    targets = d.rng.integers(0, classes, [batch, *rest])
    targets = np.where(d.rng.random(targets.shape) < 0.2, ignored or 0, targets)
    given = {"reduction": d.some(d.one("none", "mean", "sum")), "ignore_index": ignored}
    weights = d.some(np.abs(d.real([classes])) + np.float32(0.1))
    outputs = d.whole(1, 2) if log else 1
    return Operator([d.real([batch, classes, *rest]), targets, weights], given, outputs)


def _alone(text: str = "", *more: str, count: int = 1) -> Callable[[Draw], Operator]:
    """Numbers one by one, of some more dtypes, and of several tensors that are broadcast."""

    def draw(d: Draw) -> Operator:
        shape, kind = d.shape(0, 4), d.number(*more)
        shapes = [d.part(shape) if d.yes(0.4) else shape for _ in range(count)]
        given = d.given(text, 0.7)
        return Operator([d.real(one, kind) for one in shapes], given)

    return draw


def _mixed_power(d: Draw) -> Operator:
    shape = d.shape(0, 3)
    base, exponent = (d.one("float32", "float64", "int32", "int64", "float16") for _ in range(2))
    x = d.rng.integers(1, 5, shape).astype(base)
    return Operator([x, d.rng.integers(0, 4, d.part(shape)).astype(exponent)])


def _divided(d: Draw, name: str) -> Operator:
    shape, kind = d.shape(0, 4), d.number(*WHOLES)
    y = d.real(d.part(shape), kind)
    y = np.where(y == 0, np.asarray(1, kind), y)
    fmod = np.dtype(kind).kind == "f" or d.yes() if name == "Mod" else None
    return Operator([d.real(shape, kind), y], {"fmod": None if fmod is None else int(fmod)})


def _shifted(d: Draw) -> Operator:
    shape, kind = d.shape(0, 3), d.one("uint8", "uint16", "uint32", "uint64")
    y = d.rng.integers(0, 10, d.part(shape)).astype(kind)
    return Operator([d.real(shape, kind), y], {"direction": d.one("LEFT", "RIGHT")})


def _where(d: Draw) -> Operator:
    shape, kind = d.shape(0, 4), d.number(*WHOLES, "bool")
    x, y = (d.real(d.part(shape), kind) for _ in range(2))
    return Operator([d.real(d.part(shape), "bool"), x, y])


def _clip(d: Draw) -> Operator:
    kind = d.number(*WHOLES)
    low, high = (
        d.some(Known(d.real([], kind), "min", kind)),
        d.some(Known(d.real([], kind), "max", kind)),
    )
    return Operator([d.real(d.shape(0, 4), kind), low, high])


def _bits(d: Draw) -> Operator:
    kinds = d.one(
        ("float32", "int32"), ("int64", "float64"), ("uint8", "int8"), ("uint16", "int16")
    )
    source, kind = d.one(kinds, kinds[::-1])
    return Operator([d.real(d.shape(0, 3), source)], {"to": onnx_type(kind)})


def _determinant(d: Draw) -> Operator:
    size = d.whole(1, 4)
    return Operator([d.real([*d.wholes(d.whole(0, 2), 1, 3), size, size], d.number())])


_BINARY = "Add Sub Mul Equal Less LessOrEqual Greater GreaterOrEqual"


FAMILIES: Families = {
    "products": {"MatMul": _matmul, "Gemm": _gemm, "Einsum": _einsum, "Det": _determinant},
    "quantized": {
        "QuantizeLinear": _quantize,
        "DequantizeLinear": _dequantize,
        "DynamicQuantizeLinear": lambda d: Operator([d.real(d.shape(1, 4))], {}, 3),
        "MatMulInteger": _integer_matmul,
        "ConvInteger": _integer_conv,
        "QLinearConv": _quantized_conv,
        "QLinearMatMul": _quantized_matmul,
    },
    "signals, losses": {
        "DFT": _fourier,
        "STFT": _short_fourier,
        "NegativeLogLikelihoodLoss": lambda d: _loss(d, False),
        "SoftmaxCrossEntropyLoss": lambda d: _loss(d, True),
    },
    "elementwise": {
        "Cast": _cast,
        "BitCast": _bits,
        "CastLike": lambda d: _cast(d, True),
        "Where": _where,
        "Clip": _clip,
        "Pow": _mixed_power,
        "Div": lambda d: _divided(d, "Div"),
        "Mod": lambda d: _divided(d, "Mod"),
        "BitShift": _shifted,
        "PRelu": _alone("", "int32", count=2),
        "LeakyRelu": _alone("alpha=0.2|1.5|-0.5"),
        **dict.fromkeys(("Elu", "Celu"), _alone("alpha=0.2|2.0")),
        "Selu": _alone("alpha=0.5|2.0 gamma=0.5|2.0"),
        "HardSigmoid": _alone("alpha=0.1|0.5 beta=0.2|0.7"),
        "ThresholdedRelu": _alone("alpha=0.2|-0.5"),
        "Shrink": _alone("lambd=0.2|1.0 bias=0.3|1.0"),
        "Gelu": _alone("approximate=none|tanh"),
        "Swish": _alone("alpha=0.5|2.0"),
        "IsInf": _alone("detect_positive=0|1 detect_negative=0|1"),
        **dict.fromkeys(("Max", "Min"), lambda d: _alone("", *WHOLES, count=d.whole(1, 3))(d)),
        "Mean": lambda d: _alone(count=d.whole(1, 3))(d),
        **dict.fromkeys(_BINARY.split(), _alone("", *WHOLES, count=2)),
        **dict.fromkeys(("Abs", "Neg", "Sign"), _alone("", "int32", "int8")),
        **dict.fromkeys(("Round", "Floor", "Ceil", "Erf", "Softplus", "Mish"), _alone()),
    },
}

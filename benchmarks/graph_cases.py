"""Random graphs of ONNX: three to twelve nodes of many operators, types and shapes.

python benchmarks/graph_cases.py --graphs 2000
python benchmarks/graph_cases.py --graphs 2000-2600      # other ones
python benchmarks/graph_cases.py --graphs 2000 --moves   # of operators that move numbers

A node is proposed with any operands and attributes, and stays in a graph if ONNX's reference
evaluator computes it. Each graph is compiled untuned, and its outputs are compared with those of
the evaluator. Where both differ, onnxruntime is asked.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from case_suite import Suite, WrongAnswerError, main
from chameleon_networks._backends.onnx_networks import prepare
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_cases import onnxruntime_session

_FLOATS, _INTEGERS = ("float32", "float64", "float16"), ("int32", "int64", "int8", "uint8")
_TOLERANCES = {"float16": 1e-2, "float32": 1e-3, "float64": 1e-6}
"""Accepted |difference|, relative to |expected| or to 1, whichever is larger; others are exact."""
_LARGEST, _MOST_NUMBERS, _TRIES = 1e3, 5000, 20

Draw = np.random.Generator
Attributes = Callable[[Draw, Any], dict[str, Any]]


def _axis(draw: Draw, x: Any) -> int:
    return int(draw.integers(-x.ndim, x.ndim)) if x.ndim else 0


def _some_axes(draw: Draw, x: Any) -> Any:
    count = draw.integers(1, x.ndim + 1) if x.ndim else 0
    return draw.permutation(x.ndim)[:count] - x.ndim * int(draw.integers(2))


def _windows(draw: Draw, x: Any) -> dict[str, Any]:
    axes = max(1, x.ndim - 2)
    kernel = [int(n) for n in draw.integers(1, 4, axes)]
    pads = [int(draw.integers(min(2, extent))) for extent in kernel]
    return {
        "kernel_shape": kernel,
        "strides": [int(n) for n in draw.integers(1, 3, axes)],
        "pads": [*pads, *pads],
    }


def _keeping(draw: Draw, _x: Any) -> dict[str, Any]:
    return {"keepdims": int(draw.integers(2))}


_AXIS: Attributes = lambda draw, x: {"axis": _axis(draw, x)}  # noqa: E731 - one of many of a kind

_ELEMENTWISE = """
    Abs Neg Exp Log Sqrt Sin Cos Tan Asin Acos Tanh Sigmoid Erf Floor Ceil Round Relu Elu Selu
    Softplus Softsign HardSigmoid HardSwish Mish Gelu Celu Reciprocal Sign Atan Sinh Cosh Asinh
    ThresholdedRelu LeakyRelu IsNaN IsInf Identity GlobalAveragePool GlobalMaxPool BitwiseNot Not
    Shape Size Swish
"""
_BINARY = """
    Add Sub Mul Div Pow Min Max Mod PRelu MatMul Equal Less Greater LessOrEqual GreaterOrEqual And
    Or Xor BitwiseAnd BitwiseOr BitwiseXor Sum Mean GatherND Expand
"""
_REDUCTIONS = "Sum Mean Max Min Prod L1 L2 LogSumExp SumSquare"

_OPERATORS: dict[str, tuple[str, Attributes | None]] = {
    **dict.fromkeys(_ELEMENTWISE.split(), ("x", None)),
    **dict.fromkeys(_BINARY.split(), ("xx", None)),
    "Where": ("xxx", None),
    "Clip": ("xxx", None),
    "Gemm": ("xxx", lambda draw, _: {"transA": int(draw.integers(2)), "alpha": 0.5}),
    "Conv": ("xW", lambda draw, x: {**_windows(draw, x), "kernel_shape": None}),
    "ConvTranspose": ("xW", lambda draw, x: {**_windows(draw, x), "kernel_shape": None}),
    "MaxPool": ("x", _windows),
    "AveragePool": (
        "x",
        lambda draw, x: {**_windows(draw, x), "count_include_pad": int(draw.integers(2))},
    ),
    **dict.fromkeys(["Softmax", "LogSoftmax", "Hardmax", "Flatten"], ("x", _AXIS)),
    **dict.fromkeys(
        ("ArgMax", "ArgMin"),
        ("x", lambda draw, x: {**_keeping(draw, x), **_AXIS(draw, x)}),
    ),
    **{f"Reduce{name}": ("xA", _keeping) for name in _REDUCTIONS.split()},
    "Transpose": ("x", lambda draw, x: {"perm": [int(n) for n in draw.permutation(x.ndim)]}),
    "Concat": ("xx", _AXIS),
    "Gather": ("xx", _AXIS),
    "GatherElements": ("xx", _AXIS),
    "ScatterElements": ("xxx", _AXIS),
    "CumSum": ("x1", lambda draw, _: {"reverse": int(draw.integers(2))}),
    "TopK": ("xK", _AXIS),
    "Reshape": ("xS", None),
    "Unsqueeze": ("xU", None),
    "Squeeze": ("xA", None),
    "Slice": ("xBER", None),
    "Pad": ("xP", lambda draw, _: {"mode": str(draw.choice(["constant", "edge", "reflect"]))}),
    "Tile": ("xT", None),
    "Trilu": ("x", lambda draw, _: {"upper": int(draw.integers(2))}),
    "DepthToSpace": ("x", lambda *_: {"blocksize": 2}),
    "SpaceToDepth": ("x", lambda *_: {"blocksize": 2}),
    "Split": ("x", lambda draw, x: {**_AXIS(draw, x), "num_outputs": 2}),
    "LayerNormalization": ("xV", None),
    "InstanceNormalization": ("xCC", None),
    "Cast": (
        "x",
        lambda draw, _: {
            "to": helper.np_dtype_to_tensor_dtype(
                np.dtype(draw.choice([*_FLOATS, *_INTEGERS, "bool"]))
            )
        },
    ),
    "OneHot": ("xDx", _AXIS),
    "Resize": ("x.F", lambda draw, _: {"mode": str(draw.choice(["nearest", "linear"]))}),
    "ConstantOfShape": ("x", None),
    "EyeLike": ("x", None),
}
"""Inputs and attributes by operator: ``x`` is any tensor, and other letters are in ``_CONSTANTS``.
"""


_MOVES = """
    Transpose Concat Concat Gather Reshape Reshape Reshape Split Split Slice Pad Tile Expand
    DepthToSpace SpaceToDepth Neg Add Mul Where
"""
"""Operators of which kernels are remainders and quotients of loops' variables."""

_EXTENTS = [0, 1, 2, 3, 4, 5, 8], [0.02, 0.18, *[0.16] * 5]
"""Extents and how likely they are: zero and one are those of which errors are many."""
_POWERS = [1, 2, 3, 4, 8, 16], [0.1, 0.2, 0.1, 0.2, 0.2, 0.2]
"""The same of graphs of moves: divisions by powers of two are compiled to other instructions."""


def _int64(values: Any) -> Any:
    return np.asarray(values, np.int64)


def _like(draw: Draw, x: Any, shape: Any) -> Any:
    return draw.normal(size=[int(n) for n in shape]).astype(x.dtype)


def _new_shape(draw: Draw, x: Any) -> Any:
    """A shape of as many numbers: axes joined, split, or left for -1."""
    shape = [int(n) for n in draw.permutation(x.shape)]
    cut = int(draw.integers(len(shape) + 1))
    return _int64(
        [*shape[:cut], -1] if x.size and draw.integers(2) else [*shape[:cut], 1, *shape[cut:]]
    )


_CONSTANTS: dict[str, Callable[[Draw, Any], Any]] = {
    "A": lambda draw, x: _int64(_some_axes(draw, x)),
    "U": lambda draw, x: _int64([draw.integers(-x.ndim - 1, x.ndim + 1)]),
    "R": lambda draw, x: _int64(draw.permutation(x.ndim)),
    "1": lambda draw, x: _int64(_axis(draw, x)),
    "K": lambda draw, _: _int64([draw.integers(1, 4)]),
    "D": lambda draw, _: _int64(draw.integers(1, 6)),
    "S": _new_shape,
    "B": lambda draw, x: _int64(draw.integers(-4, 4, max(1, x.ndim))),
    "E": lambda draw, x: _int64(draw.integers(-1, 9, max(1, x.ndim))),
    "P": lambda draw, x: _int64(draw.integers(0, 3, 2 * x.ndim)),
    "T": lambda draw, x: _int64(draw.integers(0, 3, x.ndim)),
    "F": lambda draw, x: draw.choice([0.5, 1, 1.5, 2], x.ndim).astype(np.float32),
    "C": lambda draw, x: _like(draw, x, x.shape[1:2]),
    "V": lambda draw, x: _like(draw, x, x.shape[-1:]),
    "W": lambda draw, x: _like(
        draw, x, (draw.integers(1, 6), x.shape[1], *draw.integers(1, 4, x.ndim - 2))
    ),
}
"""Constants by letter, each drawn to suit the operator's first input."""


class GraphCases(Suite):
    """Graphs by their number, which is the seed.

    Args:
        numbers: of graphs, as a word: how many, or a range such as ``2000-2600``.
        moves: whether all operators move numbers, if it is a word at all.
    """

    def __init__(self, numbers: str, moves: str = "") -> None:
        first, _, end = numbers.rpartition("-")
        self._numbers, self._moves = range(int(first or 0), int(end)), bool(moves)

    def cases(self) -> Mapping[str, str]:
        return {str(number): f"{_nodes(number)} nodes" for number in self._numbers}

    def run(self, case: str) -> str | None:
        model, inputs, expected = Graph(int(case), moves=self._moves).model()
        rep = prepare(model)
        problem = problem_of(rep.run(inputs), expected)
        if problem is None:
            return None
        witness = witness_of(model, inputs)
        if witness is not None and problem_of(witness, expected) is not None:
            return f"onnxruntime differs from the reference as well: {problem}"
        raise WrongAnswerError(problem)


def _nodes(number: int) -> int:
    return 3 + number % 10


class Graph:
    """A random graph, and what the reference evaluator gives for each of its tensors."""

    def __init__(self, seed: int, *, moves: bool = False) -> None:
        self._draw, self._moves = np.random.default_rng(seed), moves
        self.values: dict[str, Any] = {}
        self.constants: dict[str, Any] = {}
        self.nodes: list[Any] = []
        for number in range(self._draw.integers(1, 4)):
            self.values[f"x{number}"] = self._input()
        self.inputs = list(self.values)
        names = _MOVES.split() if moves else list(_OPERATORS)
        while len(self.nodes) < _nodes(seed):
            name = str(self._draw.choice(names))
            any(self._propose(name) for _ in range(_TRIES))

    def _input(self) -> Any:
        draw = self._draw
        extents, likely = _POWERS if self._moves else _EXTENTS
        shape = draw.choice(extents, draw.integers(0, 5), p=likely)
        if self.values and draw.integers(2):
            # A part of another shape, which broadcasting goes with.
            other = next(iter(self.values.values())).shape
            shape = [int(draw.choice([1, n, n])) for n in other[draw.integers(len(other) + 1) :]]
        kind = draw.choice(["float32", "int64", "bool", *_FLOATS, *_INTEGERS])
        if draw.integers(2) or self._moves:
            kind = "float32"
        if kind in _FLOATS:
            return np.asarray(draw.normal(size=shape), kind)
        return np.asarray(draw.integers(0, 2 if kind == "bool" else 5, shape), kind)

    def _propose(self, name: str) -> bool:
        """Add a node if the reference computes it, and all its numbers are ordinary ones."""
        draw = self._draw
        letters, attributes = _OPERATORS[name]
        tensors = list(self.values)
        # Later tensors more often, so that graphs are deep.
        likely = np.arange(1, len(tensors) + 1) / (len(tensors) * (len(tensors) + 1) / 2)
        first = str(draw.choice(tensors, p=likely))
        x = self.values[first]
        operands, constants = [first], {}
        output = f"t{len(self.nodes)}"
        try:
            for place, letter in enumerate(letters[1:]):
                if letter == ".":
                    operands.append("")
                elif letter == "x":
                    operands.append(str(draw.choice(tensors)))
                else:
                    operands.append(f"{output}_{place}")
                    constants[operands[-1]] = _CONSTANTS[letter](draw, x)
            node = helper.make_node(
                name,
                operands,
                [output, f"{output}_b"] if name in {"TopK", "Split"} else [output],
                **(attributes(draw, x) if attributes else {}),
            )
            known = {**self.values, **constants}
            feeds = {key: known[key] for key in operands if key}
            with np.errstate(all="raise", under="ignore"), warnings.catch_warnings():
                warnings.simplefilter("error")
                if name == "OneHot" and x.dtype.kind == "f":
                    return False  # neither the evaluator nor onnxruntime cuts off fractions
                if name in {"GatherElements", "ScatterElements"}:
                    # The evaluator takes places that there are not for others.
                    np.take_along_axis(x, self.values[operands[1]], node.attribute[0].i)
                    shapes = [self.values[operand].shape for operand in operands]
                    if len(shapes) > 2 and shapes[1] != shapes[2]:
                        return False
                results = ReferenceEvaluator(node).run(None, feeds)
            given = {key: feeds[key] for key in operands if key in self.values}
            # The evaluator computes more than the standard has, such as operands of two types.
            _model([node], given, dict(zip(node.output, results, strict=True)), constants)
        except Exception:  # noqa: BLE001 - whatever either raises at what is no node of ONNX
            return False
        if not all(map(_is_ordinary, results)) or (name == "Cast" and _is_open(x, results[0])):
            return False
        self.nodes.append(node)
        self.constants |= constants
        self.values |= dict(zip(node.output, map(np.asarray, results), strict=True))
        return True

    def model(self) -> tuple[Any, dict[str, Any], list[Any]]:
        """The model, its inputs, and the reference's outputs: of all that no node reads."""
        read = {name for node in self.nodes for name in node.input}
        names = [name for node in self.nodes for name in node.output if name not in read]
        feeds = {name: self.values[name] for name in self.inputs}
        outputs = {name: self.values[name] for name in names}
        return _model(self.nodes, feeds, outputs, self.constants), feeds, list(outputs.values())


def _is_open(x: Any, result: Any) -> bool:
    """Whether the standard leaves open what a cast gives: an integer dtype lacks a number."""
    is_rounded = x.dtype.kind == "f" and result.dtype.kind in "iu"
    return is_rounded and bool((result != np.trunc(x)).any())


def _is_ordinary(value: Any) -> bool:
    if not isinstance(value, np.ndarray | np.generic) or value.size > _MOST_NUMBERS:
        return False
    return bool((np.abs(value.astype(np.float64)) < _LARGEST).all())


def _model(nodes: Any, feeds: Any, outputs: Any, constants: Any) -> Any:
    """A model, of which ONNX checks types and shapes.

    Raises:
        InferenceError: it finds others.
    """
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    return checked_model(nodes, infos_of(feeds), infos_of(outputs), weights, version=24)


def infos_of(values: Mapping[str, Any]) -> list[Any]:
    """Inputs or outputs of a graph: names, dtypes and shapes of arrays."""
    return [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for name, v in values.items()
    ]


def checked_model(nodes: Any, inputs: Any, outputs: Any, weights: Any, *, version: int) -> Any:
    """A model of a version of the standard, with the types and shapes that ONNX infers.

    Raises:
        InferenceError: they are not those of the outputs.
    """
    graph = helper.make_graph(nodes, "graph", inputs, outputs, weights)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", version)], ir_version=10
    )
    return onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)


def problem_of(got: Any, expected: Any) -> str | None:
    """How outputs differ from the expected ones, or None."""
    for number, (have, want) in enumerate(zip(got, expected, strict=True)):
        if (have.shape, have.dtype) != (want.shape, want.dtype):
            return f"output {number} is {have.dtype}{have.shape}, not {want.dtype}{want.shape}"
        ours, theirs = have.astype(np.float64), want.astype(np.float64)
        with np.errstate(invalid="ignore"):
            apart = np.abs(ours - theirs) / np.maximum(np.abs(theirs), 1.0)
        # Infinite numbers are equal, and so are those that are none.
        equal = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        apart = np.where(equal, 0.0, apart)
        if not (apart <= _TOLERANCES.get(str(want.dtype), 0.0)).all():
            return f"output {number} of {want.dtype} differs by {apart.max():.3g}"
    return None


def witness_of(model: Any, inputs: Any) -> Any:
    """The outputs of onnxruntime, or None if it refuses the model."""
    try:
        return onnxruntime_session(model).run(None, inputs)
    except Exception:  # noqa: BLE001 - whatever it raises at a model that it does not take
        return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--graphs", default="2000", help="how many, or a range: 2000-2600")
    parser.add_argument("--moves", action="store_true", help="of operators that move numbers")
    given, words = parser.parse_known_args()
    moves = ("moves",) if given.moves else ()
    sys.exit(main("graph_cases:GraphCases", words, options=(given.graphs, *moves)))

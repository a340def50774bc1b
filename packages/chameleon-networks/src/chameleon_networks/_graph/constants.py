"""Evaluates operators on constants in NumPy.

Relax's ``FoldConstant`` compiles a function for each of them, which takes far longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from chameleon_tvm.api import ARRAYS, HALVES, STORAGE
from numpy.typing import NDArray

from chameleon_networks._graph.relax_utils import mutate, operator_name, relax, shape_of, tvm

Array = NDArray[Any]
Known = Callable[[Any], Array | None]
"""A function that returns the value of an argument, or None if the argument is not constant."""
Evaluate = Callable[[Any, Known], Array | None]
"""A function that returns the value of a call, or None if an argument is not constant. Its second
argument gives the values of the arguments."""

_SAMPLE = 64
_IN_NUMPY = frozenset(
    f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)
)
"""Dtypes of NumPy."""

_SAME_NAMES = (
    *("add", "subtract", "multiply", "maximum", "minimum", "power", "floor_divide"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("logical_and", "logical_or", "logical_xor", "logical_not"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"),
    *("sqrt", "negative", "exp", "abs", "cos", "sin", "log", "floor", "ceil", "tanh", "square"),
    *("clip", "where", "isnan"),
)
_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    **{f"relax.{name}": getattr(np, name) for name in _SAME_NAMES},
    "relax.divide": lambda a, b: (a - np.fmod(a, b)) // b if a.dtype.kind in "iu" else a / b,
    "relax.sign": lambda x: (x > 0).astype(x.dtype) - (x < 0),
    "relax.floor_mod": np.mod,
    "relax.mod": np.fmod,
    "relax.rsqrt": lambda x: 1.0 / np.sqrt(x),
    "relax.erf": np.vectorize(math.erf, otypes=[float]),
    "relax.sigmoid": ARRAYS["sigmoid"],
    **{f"relax.nn.{name}": ARRAYS[name] for name in ("relu", "relu6", "gelu", "gelu_tanh", "silu")},
}
"""NumPy functions of element-wise operators."""

ELEMENTWISE = frozenset((*_ELEMENTWISE, "relax.nn.leakyrelu"))
"""Element-wise operators that ``evaluate`` computes."""


def _evaluator(count: int | None, function: Callable[..., Array | None]) -> Evaluate:
    """Make an evaluator of calls whose first arguments are all constant."""

    def evaluated(call: Any, known: Known) -> Array | None:
        operands = _constant_arguments(call.args[:count], known)
        return None if not operands else function(call, *operands)

    return evaluated


def _constant_arguments(arguments: Sequence[Any], known: Known) -> list[Array] | None:
    constants = [value for argument in arguments if (value := known(argument)) is not None]
    return constants if len(constants) == len(arguments) else None


def integers_of(argument: Any) -> list[int]:
    """The integers of an operator's argument: a shape expression, or a tuple of constants."""
    values = argument.values if isinstance(argument, relax.ShapeExpr) else argument.fields
    return [int(getattr(number, "value", number)) for number in values]


def slices_of(call: Any) -> list[tuple[int, ...]]:
    """The (axis, begin, end, step) of each axis that a ``strided_slice`` slices."""
    axes, *others = map(integers_of, call.args[1:])
    if len(call.args) == 4:  # noqa: PLR2004 - the call has no steps
        others.append([1] * len(axes))
    return list(zip(axes, *others, strict=True))


def _permute(call: Any, value: Array) -> Array:
    axes = call.attrs.axes
    return value.transpose(None if axes is None else [int(axis) for axis in axes])


def _full(call: Any, known: Known) -> Array | None:
    """``full`` with a constant number."""
    value = known(call.args[1])
    return None if value is None else np.full([int(e) for e in call.ty.shape], value)


def _concat(call: Any, known: Known) -> Array | None:
    fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else ()
    arrays = _constant_arguments(fields, known)
    return np.concatenate(arrays, axis=int(call.attrs.axis)) if arrays else None


def _strided_slice(call: Any, value: Array) -> Array | None:
    parts = [slice(None)] * value.ndim
    for axis, begin, end, step in slices_of(call):
        if step < 1:
            return None  # NumPy writes the end of such a slice differently
        parts[axis] = slice(begin, end, step)
    return value[tuple(parts)]


def _slice_scatter(call: Any, data: Array, part: Array, *places: Array) -> Array | None:
    begin, end, step = (int(bound) for bound in places)
    if step < 1:
        return None
    result = data.copy()
    where = [slice(None)] * data.ndim
    where[int(call.attrs.axis)] = slice(begin, end, step)
    result[tuple(where)] = part
    return result


def _take(call: Any, data: Array, places: Array) -> Array | None:
    if call.attrs.axis is None:
        return None
    axis = int(call.attrs.axis)
    inside = -data.shape[axis] <= places.min(initial=0) <= places.max(initial=0) < data.shape[axis]
    return data.take(places, axis=axis) if inside else None


def _index_tensor(call: Any, known: Known) -> Array | None:
    data = known(call.args[0])
    if data is None or not isinstance(call.args[1], relax.Tuple):
        return None
    places = _constant_arguments(call.args[1].fields, known)
    value: Array | None = None if places is None else data[tuple(places)]
    return value


def _reduce(call: Any, value: Array) -> Array:
    axes = call.attrs.axis
    over = None if axes is None else tuple(int(axis) for axis in axes)
    name = operator_name(call).removeprefix("relax.")
    reduce = np.var if name == "variance" else getattr(np, name)
    return np.asarray(reduce(_widened(value), axis=over, keepdims=bool(call.attrs.keepdims)))


def _widened(value: Array) -> Array:
    """Floating-point numbers in float64, in which sums of many terms stay accurate."""
    return value.astype(np.float64) if value.dtype.kind == "f" else value


def _normalize(call: Any, value: Array, *factors: Array) -> Array:
    """Instance, layer or group normalization of a constant."""
    known, shape, rank = call.attrs, value.shape, value.ndim
    over = {int(axis) % rank for axis in known.axes}
    layers = operator_name(call) == "relax.nn.layer_norm"
    scaled = over if layers else {int(known.channel_axis) % rank}
    split = value.astype(np.float64)
    if operator_name(call) == "relax.nn.group_norm":
        [channels] = scaled
        groups = int(known.num_groups)
        split = split.reshape(*shape[:channels], groups, -1, *shape[channels + 1 :])
        over = {axis + (axis > channels) for axis in over} | {channels + 1}
    axes = tuple(over)
    apart = split - split.mean(axes, keepdims=True)
    deviation = np.sqrt(split.var(axes, keepdims=True) + float(known.epsilon))
    gamma, beta = (
        factor.reshape([extent if axis in scaled else 1 for axis, extent in enumerate(shape)])
        for factor in factors
    )
    result = (apart / deviation).reshape(shape) * (gamma if known.scale else 1.0)
    return np.asarray(result + (beta if known.center else 0.0))


def _cumsum(call: Any, value: Array) -> Array | None:
    if bool(call.attrs.exclusive) or call.attrs.axis is None:
        return None
    return np.cumsum(_widened(value), axis=int(call.attrs.axis))


_EVALUATORS: dict[str, Evaluate] = {
    **dict.fromkeys(
        _ELEMENTWISE,
        _evaluator(None, lambda call, *values: _ELEMENTWISE[operator_name(call)](*values)),
    ),
    "relax.nn.leakyrelu": _evaluator(
        1, lambda call, value: np.where(value < 0, float(call.attrs.alpha) * value, value)
    ),
    **dict.fromkeys(
        (f"relax.{name}" for name in ("reshape", "expand_dims", "squeeze", "flatten")),
        _evaluator(1, lambda call, value: value.reshape(shape_of(call))),
    ),
    "relax.permute_dims": _evaluator(1, _permute),
    "relax.broadcast_to": _evaluator(1, lambda call, value: np.broadcast_to(value, shape_of(call))),
    "relax.astype": _evaluator(1, lambda call, value: value.astype(str(call.ty.dtype))),
    "relax.tile": _evaluator(
        1, lambda call, value: np.tile(value, [int(n) for n in call.attrs.repeats])
    ),
    "relax.arange": _evaluator(
        None, lambda call, *ends: np.arange(*(end.item() for end in ends), dtype=str(call.ty.dtype))
    ),
    **dict.fromkeys(("relax.full", "relax.full_like"), _full),
    "relax.concat": _concat,
    "relax.strided_slice": _evaluator(1, _strided_slice),
    "relax.slice_scatter": _evaluator(None, _slice_scatter),
    "relax.take": _evaluator(2, _take),
    "relax.gather_elements": _evaluator(
        None, lambda call, data, at: np.take_along_axis(data, at, axis=int(call.attrs.axis))
    ),
    "relax.index_tensor": _index_tensor,
    "relax.cumsum": _evaluator(1, _cumsum),
    **dict.fromkeys(
        (f"relax.{name}" for name in ("sum", "mean", "max", "min", "prod", "std", "variance")),
        _evaluator(1, _reduce),
    ),
    **dict.fromkeys(
        (f"relax.nn.{name}_norm" for name in ("instance", "layer", "group")),
        _evaluator(None, _normalize),
    ),
}


def fold_constants(module: Any) -> Any:
    """Replace every cheap operator on constants by its value."""
    return mutate(module, _ConstantFolder(module))


@relax.expr_functor.mutator
class _ConstantFolder(relax.PyExprMutator):
    """Evaluates calls in order, so that a folded call is a constant for later ones."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._known: dict[Any, Array] = {}
        self._constants: dict[Any, Any] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        inner = isinstance(binding.var, relax.DataflowVar)
        value = self._evaluated(binding.value) if inner else None
        if value is None:
            super().visit_var_binding_(binding)
            return
        self._known[binding.var] = value

    def visit_call_(self, call: Any) -> Any:
        if operator_name(call) == "relax.index_tensor" and self._reads_in_order(call):
            return relax.op.reshape(self.visit_expr(call.args[0]), list(shape_of(call)))
        return super().visit_call_(call)

    def _reads_in_order(self, call: Any) -> bool:
        """Whether constant indices read all elements in order, as those of some masks do."""

        def known(value: Any) -> Array | None:
            return order if value.same_as(call.args[0]) else known_value(value, self._known)

        order = np.arange(math.prod(shape_of(call.args[0]))).reshape(shape_of(call.args[0]))
        read = _index_tensor(call, known)
        return read is not None and np.array_equal(read.reshape(-1), order.reshape(-1))

    def visit_var_(self, variable: Any) -> Any:
        return self.visit_dataflow_var_(variable)

    def visit_dataflow_var_(self, variable: Any) -> Any:
        value = self._known.get(variable)
        if value is None:
            return super().visit_dataflow_var_(variable)
        if variable not in self._constants:
            # Only values with readers that stay are copied; most folded values have folded readers
            # only.
            self._constants[variable] = constant_of(value)
        return self._constants[variable]

    def _evaluated(self, value: Any) -> Array | None:
        result = evaluate(value, self._known) if operator_name(value) else None
        return None if result is None else np.asarray(result, str(value.ty.dtype), order="C")


def shared_matrix(array: NDArray[Any]) -> NDArray[Any] | None:
    """The matrix that an array repeats for every sample, or None."""
    # PyTorch exports some linear layers as batched products with repeated weights.
    matrices = array.reshape(-1, *array.shape[-2:])
    return matrices[0] if (matrices == matrices[:1]).all() else None


def exact_dtype(numbers: Array) -> str:
    """The 16-bit dtype that holds all float32 numbers exactly, or an empty string."""
    for dtype in reversed(HALVES):
        kind = STORAGE[dtype]
        # Most arrays differ in their first numbers.
        parts = numbers.reshape(-1)[:_SAMPLE], numbers
        if all(np.isfinite(part).all() and (kind.rounded(part) == part).all() for part in parts):
            return dtype
    return ""


def evaluate(call: Any, known: Mapping[Any, Array]) -> Array | None:
    """The value of a call on constants and evaluated variables, or None if it is not supported."""
    evaluated = _EVALUATORS.get(operator_name(call))
    result = None if evaluated is None else evaluated(call, lambda value: known_value(value, known))
    return None if result is None else np.asarray(result)


def known_value(argument: Any, known: Mapping[Any, Array]) -> Array | None:
    """The value of an argument that is a constant or an evaluated variable, or None."""
    if isinstance(argument, tvm.ir.GenericConst):
        return array_of(argument)
    if isinstance(argument, relax.Var):
        return known.get(argument)
    if isinstance(argument, tvm.tirx.FloatImm | tvm.tirx.IntImm):
        return np.asarray(argument.value, str(argument.ty))
    return None


def per_channel(constant: Array, *, rank: int, axis: int, channels: int) -> Array | None:
    """Convert a constant operand to one number per channel; None if it differs within a channel.

    Returns:
        An array of shape (channels,).
    """
    shape = (1,) * (rank - constant.ndim) + constant.shape
    if shape == (1,) * rank:
        return np.full(channels, constant.reshape(()), constant.dtype)
    wanted = tuple(channels if position == axis else 1 for position in range(rank))
    return np.ascontiguousarray(constant.reshape(channels)) if shape == wanted else None


def constant_of(array: Array) -> Any:
    """Make a Relax constant of the array's own dtype."""
    # ``relax.const`` turns 64-bit numbers into 32-bit ones, and copies an array twice.
    return relax.const(tvm.runtime.tensor(np.asarray(array, order="C")))


def array_of(constant: Any) -> Array:
    """A Relax constant as a read-only array that shares the constant's memory."""
    if str(constant.value.dtype) not in _IN_NUMPY:
        copy: Array = constant.value.numpy()
        return copy
    value = np.from_dlpack(constant.value)
    value.flags.writeable = False
    return value

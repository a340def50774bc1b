"""Random element-wise expressions, as operators of Relax and as NumPy computes them."""

from collections.abc import Callable
from typing import Any

import attrs
import ml_dtypes
import numpy as np
from chameleon_networks._graph.relax_utils import relax

FLOATS = ("float32", "float16", "bfloat16")
INTEGERS = ("int32", "int64", "uint8")
DTYPES = (*FLOATS, *INTEGERS)
INPUTS = ("x", "y", "z")
ELEMENTS = 48

_DEPTH = 3
_NUMBERS = (0, 1, 2, 3, 7, 10, 100)
_REALS = (0.0, -0.0, 1.0, -1.0, 0.1, 2.0, 3.0, 1e4, 12582912.0, 1e30)


def array_dtype(dtype):
    """NumPy's dtype of a name, which ml_dtypes defines for bfloat16."""
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


@attrs.frozen(kw_only=True, eq=False)
class Expression:
    """An expression in two forms.

    Attributes:
        text: the expression in words.
        kind: its dtype.
        emit: the Relax expression, from a function that emits one and the inputs by name.
        value: the array, from the inputs by name.
        constant: whether it is a constant.
    """

    text: str
    kind: str
    emit: Callable[..., Any]
    value: Callable[..., Any]
    constant: bool = False


def inputs_of(dtype, rng):
    """Arrays of random bits, among them the special numbers of a dtype."""
    kind = array_dtype(dtype)
    special = _specials(kind)
    size = kind.itemsize * ELEMENTS

    def array():
        numbers = np.frombuffer(rng.bytes(size), kind).copy()
        small = rng.integers(-9 if kind.kind != "u" else 0, 10, ELEMENTS).astype(kind)
        choice = rng.integers(0, 3, ELEMENTS)
        numbers = np.where(choice == 0, rng.choice(special, ELEMENTS), numbers)
        return np.where(choice == 1, small, numbers)

    return {name: array() for name in INPUTS}


def _specials(kind):
    if kind.kind in "iu":
        ends = np.iinfo(kind)
        return np.array([ends.min, ends.min + 1, ends.max, ends.max - 1, 0, 1, 2], kind)
    ends = ml_dtypes.finfo(kind)
    finite = [ends.max, ends.tiny, ends.smallest_subnormal, ends.eps]
    numbers = [0.0, 1.0, np.inf, np.nan, *map(float, finite)]
    return np.array([*numbers, *(-n for n in numbers)], kind)


class Drawing:
    """Draws expressions of one dtype with a random generator.

    Args:
        dtype: the dtype of the inputs.
        rng: the generator.
    """

    def __init__(self, dtype, rng):
        self.dtype = dtype
        self.rng = rng
        self.real = dtype in FLOATS
        self.signed = dtype != "uint8"
        self._known = []

    def expression(self):
        """An expression of the inputs' dtype, of booleans, or one that is converted."""
        self._known = []
        draw = self._pick(self._arithmetic, self._arithmetic, self._condition, self._converted)
        return draw(_DEPTH)

    def _pick(self, *options):
        return options[self.rng.integers(len(options))]

    def _arithmetic(self, depth):
        if depth <= 0 or self.rng.random() < 0.1:
            return self._leaf()
        if self._known and self.rng.random() < 0.25:
            return self._pick(*self._known)
        names = ["add", "subtract", "multiply", "maximum", "minimum", "where", "again"]
        names += ["divide", "floor", "sqrt"] if self.real else ["floor_divide", "floor_mod", "mod"]
        names += ["negative", "abs"] if self.signed else []
        result = self._operation(self._pick(*names), depth)
        self._known.append(result)
        return result

    def _operation(self, name, depth):
        if name == "again":  # what a simplifier of real numbers would cancel
            return self._cancelling(depth)
        a = self._arithmetic(depth - 1)
        if name in {"negative", "abs", "floor", "sqrt"}:
            return _call(name, a)
        if name == "where":
            return _where(self._condition(depth - 1), a, self._arithmetic(depth - 1))
        b = self._arithmetic(depth - 1)
        return self._binary(name, a, b)

    def _binary(self, name, a, b):
        if name in {"floor_divide", "floor_mod", "mod"}:
            b = _where(_call("equal", b, self._number(0)), self._number(1), b)
        return _call(name, a, b)

    def _cancelling(self, depth):
        a, b = self._arithmetic(depth - 1), self._leaf()
        if self.real:
            first, second = self._pick(
                ("add", "subtract"), ("subtract", "add"), ("multiply", "divide")
            )
        else:
            first, second = self._pick(
                ("add", "subtract"), ("multiply", "floor_divide"), ("multiply", "floor_mod")
            )
        self._known.append(a)
        return self._binary(second, _call(first, a, b), self._pick(a, b))

    def _condition(self, depth):
        if depth > 1 and self.rng.random() < 0.3:
            name = self._pick("logical_and", "logical_or", "logical_not")
            parts = [self._condition(depth - 1) for _ in range(1 + (name != "logical_not"))]
            return _call(name, *parts)
        if self.real and self.rng.random() < 0.2:
            return _call(self._pick("isnan", "isinf", "isfinite"), self._arithmetic(depth - 1))
        a = self._arithmetic(max(depth - 1, 0))
        b = self._pick(a, _call("add", a, self._number(1)), self._arithmetic(max(depth - 1, 0)))
        names = "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"
        return _call(self._pick(*names), *self._pick((a, b), (b, a)))

    def _converted(self, depth):
        """A number that another dtype held in between."""
        others = FLOATS if self.real else INTEGERS
        other = self._pick(*(each for each in others if each != self.dtype))
        a = _astype(self._arithmetic(depth - 1), other)
        b = _astype(self._leaf(), other)
        return _call("add", _astype(_call("multiply", a, b), self.dtype), self._leaf())

    def _leaf(self):
        if self.rng.random() < 0.35:
            return self._number(self._pick(*(_REALS if self.real else _NUMBERS)))
        name = self._pick(*INPUTS)
        return Expression(
            text=name,
            kind=self.dtype,
            emit=lambda _, inputs: inputs[name],
            value=lambda inputs: inputs[name],
        )

    def _number(self, number):
        value = np.array(number).astype(array_dtype(self.dtype))
        return Expression(
            text=repr(number),
            kind=self.dtype,
            emit=lambda *_: relax.const(value, self.dtype),
            value=lambda _: np.full(ELEMENTS, value),
            constant=True,
        )


def _extremum(greater):
    def value(a, b):
        return np.where(a != a, a, np.where(greater(a, b), a, b))  # noqa: PLR0124 - it is NaN

    return value


_VALUES = {
    "mod": np.fmod,
    "floor_mod": np.mod,
    "maximum": _extremum(np.greater),
    "minimum": _extremum(np.less),
}
_CONDITIONS = ("equal", "less", "greater", "logical", "isnan", "isinf", "isfinite", "not_equal")


def _call(name, *operands):
    kind = "bool" if name.startswith(_CONDITIONS) else operands[0].kind
    constant = all(one.constant for one in operands)
    function = _VALUES.get(name) or getattr(np, name)
    if constant and name in {"maximum", "minimum"}:
        function = getattr(np, name)  # Chameleon computes constants with NumPy
    emitted, valued = operands, operands
    if name in {"maximum", "minimum"} and operands[1].constant and not constant:
        valued = operands[::-1]  # of equal operands, such as two zeros, the variable one
    return Expression(
        text=f"{name}({', '.join(one.text for one in operands)})",
        kind=kind,
        emit=lambda emit, inputs: emit(
            getattr(relax.op, name)(*(one.emit(emit, inputs) for one in emitted))
        ),
        value=lambda inputs: function(*(one.value(inputs) for one in valued)),
        constant=constant,
    )


def _where(condition, a, b):
    operands = condition, a, b
    return Expression(
        text=f"where({', '.join(one.text for one in operands)})",
        kind=a.kind,
        emit=lambda emit, inputs: emit(
            relax.op.where(*(one.emit(emit, inputs) for one in operands))
        ),
        value=lambda inputs: np.where(*(one.value(inputs) for one in operands)),
        constant=all(one.constant for one in operands),
    )


def _astype(operand, dtype):
    return Expression(
        text=f"{dtype}({operand.text})",
        kind=dtype,
        emit=lambda emit, inputs: emit(relax.op.astype(operand.emit(emit, inputs), dtype)),
        value=lambda inputs: operand.value(inputs).astype(array_dtype(dtype)),
        constant=operand.constant,
    )


def module_of(expressions, dtype):
    """A network whose outputs are the expressions."""
    builder = relax.BlockBuilder()
    kind = relax.TensorType([ELEMENTS], dtype)
    variables = {name: relax.Var(name, kind) for name in INPUTS}
    with builder.function("main", list(variables.values())):
        with builder.dataflow():
            outputs = [
                builder.emit_output(each.emit(builder.emit, variables)) for each in expressions
            ]
        builder.emit_func_output(relax.Tuple(outputs))
    return builder.get()


def differing(got, wanted):
    """Positions at which two arrays have different bits; all NaN are equal."""
    if wanted.dtype.kind in "biu":
        return np.flatnonzero(got != wanted)
    both_nan = (got != got) & (wanted != wanted)  # noqa: PLR0124
    got, wanted = (array.view(f"u{array.dtype.itemsize}") for array in (got, wanted))
    return np.flatnonzero(~both_nan & (got != wanted))

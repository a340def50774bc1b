"""Matches activations by their values at some points, and at and beside all kinks.

Frameworks write an activation such as a hard swish in many ways. Between the points at which one of
its operators compares numbers, such an expression is analytic.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_tvm.api import ARRAYS, activated, leaky_relu

from chameleon_networks._graph.constants import ELEMENTWISE, array_of, evaluate, known_value
from chameleon_networks._graph.relax_utils import operator_name, relax, shape_of, tvm

_MAX_OPERATORS = 16
"""Most operators that are examined. The longest known activation, Mish of ONNX, has 14."""
_EXTREME_POINTS = [-3e38, -60.0, 0.0, 60.0, 3e38]
"""Points at which no form of an activation rounds by more than ``_RELATIVE`` and ``_ABSOLUTE``.
They reveal small summands, such as 1e-7 before a logarithm, and bounds, such as 255 in images."""
_SMALL_POINTS = [sign * 10.0**-power for power in range(1, 31, 2) for sign in (-1, 1)]
_POINTS = np.concatenate([np.linspace(-12.0, 12.0, 97), _SMALL_POINTS, _EXTREME_POINTS])
_TOLERANCE = 1e-6
"""Largest |difference| over the value, or over the number if that is smaller than 1: constants of
networks are float32."""
_RELATIVE, _ABSOLUTE = 1e-7, 1e-20
_KINK_TOLERANCE = float(np.finfo(np.float32).eps)
"""The same at kinks, at which no form rounds by more than the numbers themselves."""
_ROUNDING, _MAX_ROUNDING = 4 * float(np.finfo(np.float64).eps), 1e-15
"""Rounding errors over the largest number between; ELU's least numbers vanish beside 1."""

_STEPS = frozenset(
    f"relax.{name}"
    for name in (
        *("floor", "ceil", "sign", "floor_divide", "floor_mod", "mod"),
        *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"),
    )
)
"""Operators with more steps than could be examined. No activation has one."""

_PAIRS = ("maximum", "minimum", "greater", "greater_equal", "less", "less_equal")
_BOUNDS: Mapping[str, Sequence[float]] = {
    **dict.fromkeys(("relax.nn.relu", "relax.nn.leakyrelu", "relax.abs"), (0.0,)),
    "relax.nn.relu6": (0.0, 6.0),
}
_COMPARING = frozenset(
    (*_BOUNDS, "relax.clip", *(f"relax.{name}" for name in (*_PAIRS, "equal", "not_equal")))
)
"""Operators with a kink where an operand is equal to the other operand or to a bound."""
_LINEAR = frozenset(
    f"relax.{name}"
    for name in ("add", "subtract", "negative", "where", "logical_and", "logical_or", "logical_not")
)
"""Operators that are piecewise linear if their operands are."""


@attrs.frozen(kw_only=True, eq=False)
class ActivationMatch:
    """An activation, with the operators that compute it.

    Attributes:
        name: One of ``spec.ACTIVATIONS``, or a name that ``spec.leaky_relu`` makes.
        members: The variables of the activation's operators. The last one is the result.
    """

    name: str
    members: tuple[Any, ...]


def match_activation(
    variable: Any, users: Mapping[Any, Sequence[Any]], values: Mapping[Any, Any]
) -> ActivationMatch | None:
    """Find the longest activation that element-wise operators compute from a variable, or None."""
    # Other operators may read only its result.
    if not shape_of(variable):
        return None
    longest = None
    expression = _Expression(variable=variable, values=values)
    while (
        len(members := expression.members) < _MAX_OPERATORS
        and (last := _next_operator(known := expression.known, users)) is not None
        and expression.append(last)
    ):
        closed = all(
            user is not None and user.var in known
            for inner in known
            if inner is not last
            for user in users[inner]
        )
        name = expression.activation() if closed else None
        if name is not None:
            # A longer activation may begin with this one.
            longest = ActivationMatch(name=name, members=tuple(members))
    return longest


@attrs.define(kw_only=True, eq=False)
class _Expression:
    """Element-wise operators on one variable, with the points at which they may have kinks.

    Attributes:
        values: The value of each variable of the network.
        members: The variables of the operators.
        known: The values of all variables at ``_POINTS``.
        linear: The variables that are linear functions between kinks.
        kinks: The points between which the expression is an analytic function.
    """

    variable: Any
    values: Mapping[Any, Any]
    members: list[Any] = attrs.field(factory=list)
    known: dict[Any, Any] = attrs.field(init=False)
    linear: set[Any] = attrs.field(init=False)
    kinks: list[float] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.known, self.linear = self._start(_POINTS), {self.variable}

    def _start(self, points: Any) -> dict[Any, Any]:
        rank = len(shape_of(self.variable))
        return {self.variable: np.reshape(points, (1,) * (rank - 1) + (-1,))}

    def at(self, points: Any) -> dict[Any, Any]:
        """The values of all variables at some points."""
        known = self._start(points)
        for member in self.members:
            known[member] = evaluate(self.values[member], known)
        return known

    def append(self, variable: Any) -> bool:
        """Add an operator, unless it cannot be examined."""
        call = self.values[variable]
        name = operator_name(call)
        if not _is_elementwise(call) or name in _STEPS:
            return False
        constants = [known_value(argument, {}) is not None for argument in call.args]
        pairs = zip(constants, call.args, strict=True)
        is_linear = all(constant or argument in self.linear for constant, argument in pairs)
        compares = name in _COMPARING
        if shape_of(variable) != shape_of(self.variable) or (compares and not is_linear):
            return False
        with np.errstate(all="ignore"):
            outputs = evaluate(call, self.known)
            if outputs is None:
                return False
            if compares:
                self.kinks = sorted({*self.kinks, *self._new_kinks(call)})
        self.known[variable] = outputs
        self.members.append(variable)
        if is_linear and (compares or name in _LINEAR or _scales(name, constants)):
            self.linear.add(variable)
        return True

    def _distances(self, call: Any, points: Any) -> list[Any]:
        """The differences, at some points, of which an operator compares the sign."""
        known = self.at(points)
        operands: list[Any] = [known_value(argument, known) for argument in call.args]
        first, *others = (np.ravel(operand).astype(np.float64) for operand in operands)
        bounds = others or _BOUNDS[operator_name(call)]
        return [np.broadcast_to(first - bound, points.shape) for bound in bounds]

    def _new_kinks(self, call: Any) -> Iterator[float]:
        """The points at which piecewise linear operands of an operator are equal."""
        for low, high in itertools.pairwise([-math.inf, *self.kinks, math.inf]):
            first, last = _inside(low, high)
            ends = self._distances(call, np.array([first, last]))
            for number, (at_first, at_last) in enumerate(ends):
                slope = (at_last - at_first) / (last - first)
                if not slope or not math.isfinite(slope):
                    continue
                root = first - at_first / slope
                # The second step makes up for rounding errors if the root is close to zero.
                [rest] = self._distances(call, np.array([root]))[number]
                root -= rest / slope
                if low <= root <= high:
                    yield float(root)

    def activation(self) -> str | None:
        """The activation that has the values of the last operator, or None."""
        last = self.members[-1]
        name = _matching_name(np.ravel(self.known[last]), self._rounding(self.known))
        points = np.array([*_points_beside(self.kinks)])
        if name is None or not len(points):
            return name
        with np.errstate(all="ignore"):
            known, expected = self.at(points), activated(points, name)
        largest = _KINK_TOLERANCE * _size(points, expected) + self._rounding(known)
        return name if (np.abs(np.ravel(known[last]) - expected) <= largest).all() else None

    def _rounding(self, known: Mapping[Any, Any]) -> Any:
        """Bounds of the rounding errors of the expression's values, which are in float64."""
        floats = [known[member] for member in self.members if known[member].dtype.kind == "f"]
        sizes = np.abs([np.broadcast_to(value, known[self.variable].shape) for value in floats])
        return np.minimum(_ROUNDING * np.ravel(sizes.max(0, initial=0.0)), _MAX_ROUNDING)


def _scales(name: str, constants: Sequence[bool]) -> bool:
    """Whether an operator multiplies or divides by a constant."""
    return (name == "relax.multiply" and any(constants)) or (
        name == "relax.divide" and constants[1]
    )


def _inside(low: float, high: float) -> tuple[float, float]:
    """Two points of an interval, which may be infinite."""
    if math.isinf(low) and math.isinf(high):
        return -1.0, 1.0
    if math.isinf(low) or math.isinf(high):
        end, sign = (high, -1.0) if math.isinf(low) else (low, 1.0)
        step = sign * max(abs(end), 1.0)
        return end + step, end + 2 * step
    return low + (high - low) / 3, low + (high - low) * 2 / 3


def _points_beside(kinks: Sequence[float]) -> Iterator[float]:
    """The numbers of float32 at and beside kinks, and those in the middle of two kinks."""
    for kink in kinks:
        number = np.float32(kink)
        below, above = (np.nextafter(number, np.float32(end)) for end in (-math.inf, math.inf))
        yield from map(float, (below, number, above))
    yield from ((low + high) / 2 for low, high in itertools.pairwise(kinks))


def _size(points: Any, expected: Any) -> Any:
    """The sizes of values to which their errors are compared."""
    return np.maximum(np.minimum(1.0, np.abs(points)), np.abs(expected))


def _next_operator(known: Mapping[Any, Any], users: Mapping[Any, Sequence[Any]]) -> Any | None:
    """The variable of the next operator that reads only evaluated variables, or None."""
    readers = (user for variable in known for user in users[variable] if user is not None)
    for reader in readers:
        if reader.var not in known and known.keys() >= {*relax.analysis.free_vars(reader.value)}:
            return reader.var
    return None


def _is_elementwise(value: Any) -> bool:
    """Whether an operator is element-wise on variables and scalars."""
    return operator_name(value) in ELEMENTWISE and all(
        array_of(argument).size == 1
        for argument in value.args
        if isinstance(argument, tvm.ir.GenericConst)
    )


def _matching_name(outputs: Any, rounding: Any) -> str | None:
    """The activation with the given values at ``_POINTS``, up to rounding errors, or None."""
    slope = float(outputs[0] / _POINTS[0])
    names = [*ARRAYS, leaky_relu(slope)] if 0.0 < slope < 1.0 else [*ARRAYS]
    for name in names:
        expected = activated(_POINTS, name)
        difference, size = np.abs(outputs - expected), np.abs(expected)
        # Some forms overflow far from zero.
        exact = (difference <= _RELATIVE * size + _ABSOLUTE) | np.isnan(outputs)
        close = difference <= _TOLERANCE * _size(_POINTS, expected) + rounding
        settled = exact[-len(_EXTREME_POINTS) :]
        if name != "none" and close[: -len(_EXTREME_POINTS)].all() and settled.all():
            return name
    return None

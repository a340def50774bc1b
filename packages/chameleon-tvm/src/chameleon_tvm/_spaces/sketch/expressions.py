"""Evaluates index expressions of TensorIR on NumPy arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from chameleon_tvm._quick_tvm import tvm

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    tvm.tirx.Add: operator.add,
    tvm.tirx.Sub: operator.sub,
    tvm.tirx.Mul: operator.mul,
    tvm.tirx.FloorDiv: operator.floordiv,
    tvm.tirx.FloorMod: operator.mod,
    tvm.tirx.Min: np.minimum,
    tvm.tirx.Max: np.maximum,
}
_SYMBOLIC = {**_BINARY, tvm.tirx.Min: tvm.tirx.min, tvm.tirx.Max: tvm.tirx.max}
_COMPARISONS = (tvm.tirx.LT, tvm.tirx.LE, tvm.tirx.GT, tvm.tirx.GE)


def evaluate(expression: Any, variables: Mapping[str, Any]) -> Any:
    """The value of an integer expression for arrays of variables, with NumPy's broadcasting.

    Raises:
        NotImplementedError: The expression contains anything else, such as a load or a call.
    """
    return _fold(
        expression,
        lambda variable: variables[variable.name],
        lambda kind, first, second: _BINARY[kind](first, second),
    )


def _fold(
    expression: Any, read: Callable[[Any], Any], combine: Callable[[type, Any, Any], Any]
) -> Any:
    """Compute an integer expression with functions that evaluate its variables and operations."""
    if isinstance(expression, tvm.tirx.Var):
        return read(expression)
    if isinstance(expression, tvm.tirx.IntImm):
        return int(expression)
    if isinstance(expression, tvm.tirx.Cast):
        return _fold(expression.value, read, combine)
    kind = type(expression)
    if kind not in _BINARY:
        raise NotImplementedError(f"cannot compute with {kind.__name__}")
    sides = (_fold(side, read, combine) for side in (expression.a, expression.b))
    return combine(kind, *sides)


def variables_of(expression: Any) -> frozenset[str]:
    """Names of the variables of an expression; ``?`` for parts that are no arithmetic."""
    if isinstance(expression, tvm.tirx.Var):
        return frozenset({str(expression.name)})
    if isinstance(expression, tvm.tirx.IntImm):
        return frozenset()
    if isinstance(expression, tvm.tirx.Cast):
        return variables_of(expression.value)
    if type(expression) in _BINARY or isinstance(expression, _COMPARISONS):
        return variables_of(expression.a) | variables_of(expression.b)
    return frozenset({"?"})


def substitute_numbers(expression: Any, values: Mapping[str, int]) -> Any:
    """An integer expression in which numbers replace some variables."""

    def combine(kind: type, first: Any, second: Any) -> Any:
        if isinstance(first, int) and isinstance(second, int):
            return int(_BINARY[kind](first, second))
        return _SYMBOLIC[kind](first, second)

    return _fold(expression, lambda leaf: values.get(str(leaf.name), leaf), combine)

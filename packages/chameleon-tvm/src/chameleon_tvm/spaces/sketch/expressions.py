"""TensorIR index expressions evaluated on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from chameleon_tvm.quick_tvm import tvm

_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    tvm.tirx.Add: np.add,
    tvm.tirx.Sub: np.subtract,
    tvm.tirx.Mul: np.multiply,
    tvm.tirx.FloorDiv: np.floor_divide,
    tvm.tirx.FloorMod: np.mod,
    tvm.tirx.Min: np.minimum,
    tvm.tirx.Max: np.maximum,
}


def evaluate(expression: Any, variables: Mapping[str, Any]) -> Any:
    """The value of an integer expression for arrays of variables, by NumPy's broadcasting.

    Args:
        expression: a TensorIR expression of variables, constants and integer arithmetic.
        variables: an integer array or number for every variable's name.

    Raises:
        NotImplementedError: the expression holds anything else (a load, a call).
    """
    if isinstance(expression, tvm.tirx.Var):
        return variables[expression.name]
    if isinstance(expression, tvm.tirx.IntImm):
        return int(expression)
    if isinstance(expression, tvm.tirx.Cast):
        return evaluate(expression.value, variables)
    operation = _BINARY.get(type(expression))
    if operation is None:
        raise NotImplementedError(f"cannot evaluate {type(expression).__name__} on arrays")
    return operation(evaluate(expression.a, variables), evaluate(expression.b, variables))

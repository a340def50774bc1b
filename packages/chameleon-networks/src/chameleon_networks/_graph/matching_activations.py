"""Matches activations by their values at some points.

Frameworks write an activation such as a hard swish in many ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_tvm.api import ARRAYS, activated, leaky_relu

from chameleon_networks._graph.constants import ELEMENTWISE, array_of, evaluate
from chameleon_networks._graph.relax_utils import operator_name, relax, shape_of, tvm

_MAX_OPERATORS = 16
"""Most operators that are examined. The longest known activation, Mish of ONNX, has 14."""
_EXTREME_POINTS = [-3e38, -60.0, 0.0, 60.0, 3e38]
"""Points at which no form of an activation rounds by more than ``_RELATIVE`` and ``_ABSOLUTE``.
They reveal small summands, such as 1e-7 before a logarithm, and bounds, such as 255 in images."""
_POINTS = np.concatenate([np.linspace(-12.0, 12.0, 97), [-0.01, 0.01, *_EXTREME_POINTS]])
_TOLERANCE = 1e-6
"""Largest |difference| over the larger of 1 and the value: constants of networks are float32."""
_RELATIVE, _ABSOLUTE = 1e-7, 1e-20


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
    rank = len(shape_of(variable))
    if rank == 0:
        return None
    longest = None
    known = {variable: _POINTS.reshape((1,) * (rank - 1) + (-1,))}
    members: list[Any] = []
    while len(members) < _MAX_OPERATORS and (last := _next_operator(known, users)) is not None:
        value = values[last]
        if not _is_elementwise(value) or shape_of(last) != shape_of(variable):
            break
        with np.errstate(all="ignore"):
            outputs = evaluate(value, known)
        if outputs is None:
            break
        known[last] = outputs
        members.append(last)
        inside = {*known} - {last}
        closed = all(
            user is not None and user.var in known for inner in inside for user in users[inner]
        )
        name = _matching_name(outputs.reshape(-1)) if closed else None
        if name is not None:
            # A longer activation may begin with this one.
            longest = ActivationMatch(name=name, members=tuple(members))
    return longest


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


def _matching_name(outputs: Any) -> str | None:
    """The activation with the given values at ``_POINTS``, or None."""
    slope = float(outputs[0] / _POINTS[0])
    names = [*ARRAYS, leaky_relu(slope)] if 0.0 < slope < 1.0 else [*ARRAYS]
    for name in names:
        expected = activated(_POINTS, name)
        difference, size = np.abs(outputs - expected), np.abs(expected)
        # Some forms overflow far from zero.
        exact = (difference <= _RELATIVE * size + _ABSOLUTE) | np.isnan(outputs)
        close = difference <= _TOLERANCE * np.maximum(1.0, size)
        settled = exact[-len(_EXTREME_POINTS) :]
        if name != "none" and close[: -len(_EXTREME_POINTS)].all() and settled.all():
            return name
    return None

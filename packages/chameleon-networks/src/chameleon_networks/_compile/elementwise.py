"""Lowers element-wise operators to TensorIR with arithmetic that TVM does not simplify.

TVM's own functions simplify an expression while they make it, such as ``x * 0``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from chameleon_tvm.api import emit, opaque, te, tirx

from chameleon_networks._graph.constants import array_of
from chameleon_networks._graph.relax_utils import operator_name, tvm

Lower = Callable[[Any, Any], Any]
"""A function that lowers a call of an operator, with a builder of Relax expressions."""


def _elementwise(function: Callable[..., Any]) -> Lower:
    """Make a function that lowers an operator to a function of its operands' elements."""

    def lowered(builder: Any, call: Any) -> Any:
        def whole(*operands: Any) -> Any:
            def value(*at: Any) -> Any:
                return function(*(_element(operand, at) for operand in operands))

            return te.compute([*call.ty.shape], value, name=name)

        name = operator_name(call).removeprefix("relax.")
        arguments = list(map(_scalar, call.args))
        if not any(map(_is_tensor, arguments)):
            arguments = list(call.args)
        return builder.call_te(whole, *arguments, primfunc_name_hint=name)

    return lowered


def _is_tensor(argument: Any) -> bool:
    return not isinstance(argument, tirx.IntImm | tirx.FloatImm)


def _scalar(argument: Any) -> Any:
    """A constant without axes as a number of TensorIR; other expressions stay as they are."""
    if not isinstance(argument, tvm.ir.GenericConst) or argument.ty.ndim:
        return argument
    number, dtype = array_of(argument).item(), str(argument.ty.dtype)
    if "float" in dtype:
        return tirx.FloatImm(dtype, number)
    return tirx.IntImm(dtype, number) if number < 2**63 else argument


def _element(operand: Any, at: tuple[Any, ...]) -> Any:
    """The element of an operand, which may be broadcast, at a place of the result."""
    if not isinstance(operand, te.Tensor):
        return operand
    extents = operand.shape
    places = at[len(at) - len(extents) :]
    return operand(
        *(
            0 if isinstance(extent, tirx.IntImm) and int(extent) == 1 else place
            for extent, place in zip(extents, places, strict=True)
        )
    )


def _floor_divide(a: Any, b: Any) -> Any:
    return tirx.floor(opaque("divide", a, b)) if emit.is_float(a) else opaque("floor_divide", a, b)


def _extremum(name: str, a: Any, b: Any) -> Any:
    """A maximum or minimum that is NaN if an operand is; that of ``opaque`` is the second then."""
    if not emit.is_float(a):
        return opaque(name, a, b)
    if isinstance(b, tirx.FloatImm):
        a, b = b, a
    if isinstance(a, tirx.FloatImm) and not math.isnan(a.value):
        return opaque(name, a, b)
    return tirx.Select(opaque("not_equal", a, a), a, opaque(name, a, b))


def _negative(x: Any) -> Any:
    zero = tirx.FloatImm(str(x.ty), -0.0) if emit.is_float(x) else tirx.IntImm(str(x.ty), 0)
    return opaque("subtract", zero, x)


def _compare_with_infinity(name: str, x: Any) -> Any:
    x = x if str(x.ty) == "float64" else emit.cast("float32", x)
    return opaque(name, tirx.abs(x), tirx.FloatImm(str(x.ty), np.inf))


def _integers(lower: Lower) -> Lower:
    """Lower an operator for integers alone, and leave that of floats to TVM."""

    def lowered(builder: Any, call: Any) -> Any:
        if "float" in str(call.ty.dtype):
            return call.op.get_attr("FLegalize")(builder, call)
        return lower(builder, call)

    return lowered


ELEMENTWISE: dict[str, Lower] = {
    **{
        f"relax.{name}": _elementwise(partial(opaque, name))
        for name in ("add", "subtract", "multiply", "divide", "equal", "not_equal")
    },
    **{f"relax.{name}": _elementwise(partial(opaque, name)) for name in ("less", "less_equal")},
    "relax.greater": _elementwise(lambda a, b: opaque("less", b, a)),
    "relax.greater_equal": _elementwise(lambda a, b: opaque("less_equal", b, a)),
    **{f"relax.{name}": _elementwise(partial(_extremum, name)) for name in ("maximum", "minimum")},
    "relax.floor_divide": _elementwise(_floor_divide),
    "relax.floor_mod": _integers(_elementwise(partial(opaque, "floor_modulo"))),
    "relax.mod": _integers(_elementwise(partial(opaque, "modulo"))),
    "relax.negative": _elementwise(_negative),
    "relax.isnan": _elementwise(lambda x: opaque("not_equal", x, x)),
    "relax.isinf": _elementwise(partial(_compare_with_infinity, "equal")),
    "relax.isfinite": _elementwise(partial(_compare_with_infinity, "less")),
}
"""Functions that lower an operator, by its name."""

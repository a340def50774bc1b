"""Axes of kernels that end where a call says, below the extent for which a kernel was compiled.

A network for many sizes of inputs has kernels for few of them. Arrays have the layout of the size
for which a kernel was compiled. Loops over an open axis end at the size of the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

import attrs

from chameleon_tvm._emit import Expr
from chameleon_tvm._late_tvm import structural_map, tirx, tvm

BATCH, ROWS, QUERIES, KEYS = "batch", "rows", "queries", "keys"
"""Axes of operators that may be open: samples, rows of a dense layer, tokens of attention."""

_NAME = "chameleon_extent"


@attrs.frozen(kw_only=True)
class OpenAxes:
    """The open axes of an operator, whose extents are multiples of one number, such as a length.

    Attributes:
        extent: The number for which a function is compiled.
        extents: The extents of the axes, by name.
    """

    extent: int = 1
    extents: Mapping[str, int] = {}


_NONE = OpenAxes()
_OPEN: ContextVar[OpenAxes] = ContextVar("open axes", default=_NONE)


@contextmanager
def with_open_axes(axes: OpenAxes) -> Iterator[None]:
    """Let templates write functions whose loops over some axes end where a call says."""
    token = _OPEN.set(axes)
    try:
        yield
    finally:
        _OPEN.reset(token)


def current_axes() -> OpenAxes:
    """The open axes of the function that is written."""
    return _OPEN.get()


def extent_of(axis: str, extent: int) -> Expr:
    """The number of elements of an axis that a call computes; an int if the axis is not open."""
    axes = _OPEN.get()
    if axes.extents.get(axis) != extent:
        return extent
    return called_extent() * (extent // axes.extent)


def called_extent() -> Expr:
    """The number that a call gives, which ``with_extent`` makes a parameter."""
    return tirx.call_pure_extern("int32", _NAME)


def with_extent(function: tirx.PrimFunc, fixed: int = 0) -> tuple[tirx.PrimFunc, bool]:
    """Let a function take the extent of a call as its last parameter, if it has open axes.

    Args:
        function: The function.
        fixed: The extent of all calls, which then is no parameter; 0 if calls differ.
    """
    parameter = tirx.IntImm("int32", fixed) if fixed else tirx.Var("extent", "int32")
    calls: list[Expr] = []

    def replaced(call: tirx.Call) -> Expr:
        if len(call.args) != 1 or getattr(call.args[0], "value", "") != _NAME:
            return call
        calls.append(call)
        return parameter

    body = structural_map(function.body, (tvm.ir.Call, replaced))
    if fixed or not calls:
        return function.with_body(body), False
    extended = tirx.PrimFunc([*function.params, parameter], body, function.ret_type)
    return extended.with_attrs(dict(function.attrs)), True

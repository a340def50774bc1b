"""Axes of kernels that end where a call says, below the extent for which a kernel was compiled.

A network for many sizes of inputs has kernels for few of them. Arrays have the layout of the size
for which a kernel was compiled. Loops over an open axis end at the size of the call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import attrs

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Expr
from chameleon_tvm._late_tvm import structural_map, tirx, tvm

BATCH, QUERIES, KEYS = "batch", "queries", "keys"
"""Axes of operators that may be open: samples, and tokens of attention."""

HEIGHT, WIDTH, INPUT_HEIGHT, INPUT_WIDTH = "height", "width", "input height", "input width"
"""Axes of a convolution's output and input that may be open. The rows of a dense layer are the
width of an image."""

_PIXELS = "pixels"
"""The axis of a 1x1 convolution whose images are read as one row. It ends with the height."""

_NAME = "chameleon_extent"

_OVERHANG = 8
"""Number of elements after the border that Winograd's tiles may read."""


@attrs.frozen(kw_only=True)
class OpenAxis:
    """An axis whose extent follows from the number that a call gives, such as a length.

    Attributes:
        extent: The extent for which a function is compiled.
        steps: Pairs (a, s) that give the extent of a call: n becomes (n + a) // s, one after the
            other. A convolution with stride s has such a pair.
        factor: The extent is so many times the result.
        repeats: The axis consists of so many equal parts. A call has the beginning of each, and
            loops over the axis do not end with it.
        border: Number of elements after those of a call that a function reads as zeros.
    """

    extent: int
    steps: tuple[tuple[int, int], ...] = ()
    factor: int = 1
    repeats: int = 1
    border: int = 0

    def of(self, number: Any) -> Any:
        """The extent of a part for a number, an int or an expression, without the border."""
        for more, stride in self.steps:
            number += more
            if isinstance(number, int):
                number //= stride
            else:
                number = emit.quotient(number, stride, known=False)
        return number * self.factor if self.factor > 1 else number


@attrs.frozen(kw_only=True)
class OpenAxes:
    """The open axes of an operator, by name."""

    axes: Mapping[str, OpenAxis] = {}


def image_axes(spec: Any, number: int, axis: OpenAxis) -> tuple[dict[str, OpenAxis], OpenAxis]:
    """The open axes of a convolution, and that of its output.

    Args:
        spec: The ``ConvolutionSpec``.
        number: The number of the open spatial axis, from the first one on.
        axis: This axis of the input.
    """
    before, after = spec.pads[number], spec.pads[number + spec.rank]
    stride, covered = spec.strides[number], spec.dilated_kernel[number]
    own = before + after - covered + stride, stride
    steps = axis.steps if own == (0, 1) else (*axis.steps, own)
    output = OpenAxis(extent=spec.output_shape[number + 2], steps=steps)
    border = after + (_OVERHANG if spec.rank > 1 and covered > 1 else 0)
    names = (HEIGHT, INPUT_HEIGHT), (WIDTH, INPUT_WIDTH)
    out, data = names[number - spec.rank + len(names)]
    axes = {out: output, data: attrs.evolve(axis, border=border)}
    if out == HEIGHT and spec.kernel_size[-2:] == (1, 1) and output.steps == axis.steps:
        width = spec.output_shape[-1]
        pixels = output.extent * width
        axes[_PIXELS] = attrs.evolve(axis, extent=pixels, factor=axis.factor * width)
    return axes, output


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
    """The number of elements of an axis that a call computes; an int if the axis is not open.

    With a border, it may be larger than ``extent``.
    """
    axes = _OPEN.get().axes
    own = axes.get(axis)
    if axis in {WIDTH, INPUT_WIDTH} and (own is None or own.extent != extent):
        own = axes.get(_PIXELS)
    if own is None or own.extent != extent or own.repeats > 1:
        return extent
    return own.of(called_extent()) + own.border


def with_zeros(function: tirx.PrimFunc, axes: Mapping[str, int]) -> tirx.PrimFunc:
    """Let a function begin with zeros after the elements of a call that its first parameter has.

    Args:
        function: The function.
        axes: The axes of its first parameter, by name.
    """
    opened = _OPEN.get().axes
    [data, *_] = function.params
    shape = [int(extent) for extent in data.shape]
    zeros = []
    for name, place in axes.items():
        own = opened.get(name)
        if own is None or not own.border:
            continue
        start = own.of(called_extent())
        ends = dict(zip("abcdefg", shape, strict=False))
        ends["abcdefg"[place]] = tirx.max(tirx.min(own.border, own.extent - start), 0)

        def zero(*at: Expr, place: int = place, start: Expr = start) -> Any:
            index = [*at]
            index[place] += start
            return tirx.BufferStore(data, tirx.const(0, str(data.dtype)), index)

        zeros.append(emit.loops(ends, zero))
    if not zeros:
        return function
    return function.with_body(emit.sequence([*zeros, function.body]))


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

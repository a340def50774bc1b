"""Decides which loops can be vectorized, and writes vectorized loops."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from chameleon_tvm._quick_tvm import tirx, tvm
from chameleon_tvm._spaces.loops.trees import found, substituted, uses

LEAST_LANES = 4
"""Smallest number of lanes of a vector. Narrower vectors are not worth their code."""

MOST_STEP = 4
"""Largest distance in memory, in elements, from one lane of a vector to the next."""

MOST_CUTS = 8
"""Largest number of points at which a loop is cut. A loop with more is left as it is."""

COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def width_of(extent: int, lanes: int) -> int:
    """The width of the widest vector with which a loop can be vectorized.

    Returns:
        The largest power of two that exceeds neither ``extent`` nor ``lanes``. 0 if this number is
        less than ``LEAST_LANES``, so the loop should not be vectorized.
    """
    width = 1 << min(extent, lanes).bit_length() >> 1
    return width if width >= LEAST_LANES else 0


def computes(value: Any, variable: Any) -> bool:
    """Whether a value can be computed in vectors along a variable.

    Each array element that the value reads must be the same for all lanes, or move by at most
    ``MOST_STEP`` elements from lane to lane. No condition on the lane may decide which elements are
    read.
    """

    def fits(node: Any) -> bool:
        if isinstance(node, tvm.ir.TensorLoad):
            step = stride_of(node.source, node.indices, variable)
            return step is not None and 0 <= step <= MOST_STEP
        if "if_then_else" in str(node.op):
            return not uses(node.args[0], variable)
        return "call_packed" not in str(node.op)

    return all(map(fits, found(value, (tvm.ir.TensorLoad, tvm.ir.Call))))


def stride_of(buffer: Any, indices: Sequence[Any], variable: Any) -> int | None:
    """Number of elements by which an access moves if a loop variable grows by one.

    The result is None if this number varies, or if another index than the last one moves. Vectors
    lie along the last axis.
    """
    steps = [step_of(index, variable) for index in indices]
    if any(step != 0 for step in steps[:-1]) or not steps:
        return None if steps else 0
    last = steps[-1]
    strides = list(buffer.ty.strides)
    if last is None or not last or not strides:
        return last
    return last * int(strides[-1]) if isinstance(strides[-1], tirx.IntImm) else None


def offset_of(buffer: Any, indices: Sequence[Any]) -> Any:
    """The position of an array's element in memory, in elements from the array's start."""
    strides = list(buffer.ty.strides)
    if not strides:
        extents = itertools.accumulate(reversed(buffer.shape[1:]), operator.mul, initial=1)
        strides = list(extents)[::-1]
    return sum(index * stride for index, stride in zip(indices, strides, strict=True))


def step_of(index: Any, variable: Any) -> int | None:
    """The number by which an index grows if a loop variable grows by one, or None.

    None means that the number is not constant.
    """
    if not uses(index, variable):
        return 0
    unit = tirx.IntImm(str(variable.ty), 1)
    grown = substituted(index, variable, variable + unit) - index
    change = tvm.sym.Analyzer().simplify(grown)
    return int(change) if isinstance(change, tirx.IntImm) else None


def reads_buffer(value: Any, buffer: Any) -> bool:
    """Whether a value depends on elements of an array."""
    return any(load.source.same_as(buffer) for load in found(value, tvm.ir.TensorLoad))


def analyzer_of(*ranges: tuple[Any, int]) -> Any:
    """TVM's analyzer, which knows that variables count from 0 to below their extents."""
    analyzer = tvm.sym.Analyzer()
    for variable, extent in ranges:
        bounds = (tirx.IntImm(str(variable.ty), number) for number in (0, extent))
        analyzer.bind(variable, tvm.ir.Range.from_min_extent(*bounds))
    return analyzer


def counted_loop(variable: Any, extent: int, body: Any, kind: Any = tirx.ForKind.SERIAL) -> Any:
    """A loop of ``extent`` iterations that counts from 0."""
    dtype = str(variable.ty)
    return tirx.For(variable, tirx.IntImm(dtype, 0), tirx.IntImm(dtype, extent), kind, body)


def lane_loop(dtype: str, width: int, body: Callable[[Any], Any]) -> Any:
    """A vectorized loop whose iterations are the lanes.

    Args:
        body: A function of the lane's number, which returns the statement of that lane.
    """
    lane = tirx.Var("lane", dtype)
    kind = tirx.ForKind.VECTORIZED if width > 1 else tirx.ForKind.SERIAL
    return counted_loop(lane, width, body(lane), kind)


def decided(node: Any) -> Any:
    """Replace a conditional expression with a constant condition by the branch that is taken."""
    if isinstance(node, tirx.Select):
        condition, yes, no = node.condition, node.true_value, node.false_value
    elif "if_then_else" in str(node.op):
        condition, yes, no = node.args
    else:
        return node
    known = tvm.sym.Analyzer().simplify(condition)
    if not isinstance(known, tirx.IntImm):
        return node
    return yes if int(known) else no


@attrs.frozen(kw_only=True)
class Guarded:
    """The body of a loop over one of several parts of an axis. The last part may be shorter.

    Attributes:
        body: The loop's body without its condition.
        whole: Condition that the part lies completely within the axis.
        rest: Number of iterations in the last part.
    """

    body: Any
    whole: Any
    rest: int

    @classmethod
    def of(cls, loop: Any) -> Guarded | None:
        """Recognize a loop whose body is under one condition, as for a shorter last part.

        The result is None for other loops.
        """
        body, width, variable = loop.body, int(loop.extent), loop.loop_var
        if not isinstance(body, tirx.IfThenElse) or body.else_case is not None:
            return None
        condition = body.condition
        if not isinstance(condition, tirx.LT) or not isinstance(condition.b, tirx.IntImm):
            return None
        start = substituted(condition.a, variable, tirx.IntImm(str(variable.ty), 0))
        over = tvm.sym.Analyzer().simplify(tirx.floormod(start, width))
        if step_of(condition.a, variable) != 1 or not isinstance(over, tirx.IntImm) or int(over):
            return None
        end = int(condition.b)
        return cls(body=body.then_case, whole=start <= end - width, rest=end % width)

    def split(self, width: int, part: Callable[[int], Any]) -> Any:
        """A conditional statement with one branch for whole parts and one for the last part.

        Args:
            part: A function of a number of iterations, which returns the statement for a part of
                that length.
        """
        return tirx.IfThenElse(self.whole, part(width), part(self.rest) if self.rest else None)

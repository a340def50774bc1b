"""Decides which loops can be vectorized, and writes vectorized loops."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from chameleon_tvm._quick_tvm import tirx, tvm
from chameleon_tvm._spaces.loops.trees import find_nodes, substitute, uses

MIN_LANES = 4
"""Smallest number of lanes of a vector. Narrower vectors are not worth their code."""

MAX_STRIDE = 4
"""Largest distance in memory, in elements, from one lane of a vector to the next."""

MAX_SPLITS = 8
"""Largest number of points at which a loop is cut. A loop with more is left as it is."""

COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def vector_width(extent: int, lanes: int) -> int:
    """The largest power of two up to ``extent`` and ``lanes``; 0 if it is below ``MIN_LANES``."""
    width = 1 << min(extent, lanes).bit_length() >> 1
    return width if width >= MIN_LANES else 0


def is_vectorizable(value: Any, variable: Any) -> bool:
    """Whether a value can be computed in vectors along a variable.

    Lanes may read elements at most ``MAX_STRIDE`` apart, and no condition may depend on the lane.
    """

    def fits(node: Any) -> bool:
        if isinstance(node, tvm.ir.TensorLoad):
            step = stride_of(node.source, node.indices, variable)
            return step is not None and 0 <= step <= MAX_STRIDE
        if "if_then_else" in str(node.op):
            return not uses(node.args[0], variable)
        return "call_packed" not in str(node.op)

    return all(map(fits, find_nodes(value, (tvm.ir.TensorLoad, tvm.ir.Call))))


def stride_of(buffer: Any, indices: Sequence[Any], variable: Any) -> int | None:
    """Number of elements by which an access moves if a loop variable grows by one.

    It is None if the number varies, or if another index than the last one moves.
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
    """The number by which an index grows if a loop variable grows by one; None if it varies."""
    if not uses(index, variable):
        return 0
    unit = tirx.IntImm(str(variable.ty), 1)
    difference = substitute(index, variable, variable + unit) - index
    change = tvm.sym.Analyzer().simplify(difference)
    return int(change) if isinstance(change, tirx.IntImm) else None


def reads_buffer(value: Any, buffer: Any) -> bool:
    """Whether a value depends on elements of an array."""
    return any(load.source.same_as(buffer) for load in find_nodes(value, tvm.ir.TensorLoad))


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
    """A vectorized loop whose iterations are the lanes."""
    lane = tirx.Var("lane", dtype)
    kind = tirx.ForKind.VECTORIZED if width > 1 else tirx.ForKind.SERIAL
    return counted_loop(lane, width, body(lane), kind)


def fold_condition(node: Any) -> Any:
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
class GuardedBody:
    """The body of a loop over one of several parts of an axis, the last of which may be shorter.

    Attributes:
        body: The loop's body without its condition.
        is_full: Condition that the part lies completely within the axis.
        remainder: Number of iterations in the last part.
    """

    body: Any
    is_full: Any
    remainder: int

    @classmethod
    def of(cls, loop: Any) -> GuardedBody | None:
        """Recognize a loop whose body is under one condition, for a shorter last part."""
        body, width, variable = loop.body, int(loop.extent), loop.loop_var
        if not isinstance(body, tirx.IfThenElse) or body.else_case is not None:
            return None
        condition = body.condition
        if not isinstance(condition, tirx.LT) or not isinstance(condition.b, tirx.IntImm):
            return None
        start = substitute(condition.a, variable, tirx.IntImm(str(variable.ty), 0))
        offset = tvm.sym.Analyzer().simplify(tirx.floormod(start, width))
        if (
            step_of(condition.a, variable) != 1
            or not isinstance(offset, tirx.IntImm)
            or int(offset)
        ):
            return None
        end = int(condition.b)
        return cls(body=body.then_case, is_full=start <= end - width, remainder=end % width)

    def split(self, width: int, part: Callable[[int], Any]) -> Any:
        """A conditional statement with one branch for whole parts and one for the last part."""
        return tirx.IfThenElse(
            self.is_full, part(width), part(self.remainder) if self.remainder else None
        )

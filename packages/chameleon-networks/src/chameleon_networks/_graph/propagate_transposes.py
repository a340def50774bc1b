"""Moves transposes towards the outputs of a graph until they cancel, and merges reshapes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import numpy as np

from chameleon_networks._graph.constants import ELEMENTWISE as EVALUATED
from chameleon_networks._graph.constants import array_of
from chameleon_networks._graph.relax_utils import (
    axes_of,
    mutate,
    operator_name,
    relax,
    shape_of,
    static_shape,
    tvm,
    users_of,
    with_args,
)

Axes = tuple[int, ...]


@attrs.frozen(kw_only=True)
class PermutedReshape:
    """A permutation, a reshape and a permutation that replace a permutation and a reshape.

    Attributes:
        first: The axes of the first permutation.
        shape: The shape after the reshape.
        last: The axes of the last permutation.
    """

    first: Axes
    shape: Axes
    last: Axes


def keeps_memory_order(axes: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a permutation moves only axes of extent 1, so that memory stays the same."""
    moving = [axis for axis in axes if shape[axis] != 1]
    return moving == sorted(moving)


def move_past_reshape(
    shape: Sequence[int], axes: Sequence[int], reshaped: Sequence[int]
) -> PermutedReshape:
    """Move a permutation behind a reshape, except for axes that the reshape merges."""
    blocks = _reshape_blocks([shape[axis] for axis in axes], reshaped)
    origins = [tuple(axes[position] for position in inside) for inside, _ in blocks]

    def first_of(block: int) -> float:
        real = [axis for axis in origins[block] if shape[axis] != 1]
        return min(real or origins[block], default=-1)

    order = sorted(range(len(blocks)), key=first_of)
    places = {i: n for n, i in enumerate(_concatenate_axes(blocks[b][1] for b in order))}
    return PermutedReshape(
        first=_concatenate_axes(origins[block] for block in order),
        shape=tuple(reshaped[position] for position in places),
        last=tuple(places[position] for position in range(len(reshaped))),
    )


def move_past_reduction(axes: Sequence[int], reduced: Sequence[int]) -> tuple[Axes, Axes]:
    """Compute the axes for a reduction that moves before the permutation that it follows."""
    dropped = tuple(axes[axis] for axis in reduced)
    remaining = [axis for position, axis in enumerate(axes) if position not in reduced]
    return dropped, tuple(sorted(remaining).index(axis) for axis in remaining)


def _reshape_blocks(shape: Sequence[int], reshaped: Sequence[int]) -> list[tuple[Axes, Axes]]:
    """The smallest groups of axes before and after a reshape that hold the same elements."""
    blocks: list[tuple[Axes, Axes]] = []
    here = there = 0
    while here < len(shape) or there < len(reshaped):
        begin, start = here, there
        before = after = 1
        if here < len(shape):
            before, here = shape[here], here + 1
        if there < len(reshaped):
            after, there = reshaped[there], there + 1
        while before != after:
            if before < after:
                before, here = before * shape[here], here + 1
            else:
                after, there = after * reshaped[there], there + 1
        blocks.append((tuple(range(begin, here)), tuple(range(start, there))))
    return blocks


def _concatenate_axes(parts: Iterable[Axes]) -> Axes:
    return tuple(itertools.chain.from_iterable(parts))


ELEMENTWISE = EVALUATED | {"relax.astype", "relax.quantize", "relax.dequantize"}
_RESHAPING = frozenset({"relax.reshape", "relax.broadcast_to", "relax.expand_dims"})
_REDUCTIONS = frozenset(f"relax.{name}" for name in ("mean", "sum", "max", "min", "prod"))
_RESIZE = "relax.image.resize2d"
_EXACT = frozenset({"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"})
"""Coordinate transformations for which a resize to the same size changes nothing."""

_PASSING = frozenset({*ELEMENTWISE, "relax.concat", "relax.split", _RESIZE})
"""Operators past which a permutation of their inputs can be moved."""


def propagate_transposes(module: Any) -> Any:
    """Move permutations towards outputs, so that inverse ones cancel, and merge reshapes."""
    return mutate(module, _TransposeMover(module))


@relax.expr_functor.mutator
class _TransposeMover(relax.PyExprMutator):
    """Notes the source of each variable that is a permutation or a reshape."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._permuted: dict[Any, tuple[Any, tuple[int, ...]]] = {}
        self._reshaped: dict[Any, Any] = {}
        self._split: dict[Any, tuple[int, ...]] = {}
        self._users = users_of(module["main"])

    def visit_var_binding_(self, binding: Any) -> None:
        value = self.visit_expr(binding.value)
        axes = self._split.get(value.tuple_value) if isinstance(value, relax.TupleGetItem) else None
        if not isinstance(binding.var, relax.DataflowVar):
            if axes is None:
                super().visit_var_binding_(binding)
                return
            permuted = relax.op.permute_dims(self.builder_.emit(value), list(axes))
            self.set_var_remap(binding.var, self.builder_.emit_output(permuted))
            return
        emitted = None
        if axes is not None:
            emitted = self._permute(self.builder_.emit(value), axes)
        elif operator_name(value) == "relax.split":
            emitted = self._splitted(value)
        elif operator_name(value) and _is_tensor(value):
            emitted = self._moved(value, binding.var)
        if not isinstance(emitted, relax.Var):  # a constant cannot replace a variable
            emitted = self.builder_.emit(value if emitted is None else emitted)
        self.set_var_remap(binding.var, emitted)

    def _moved(self, call: Any, variable: Any) -> Any | None:
        name = str(call.op.name)
        result = None
        if name == "relax.permute_dims":
            result = self._permute(call.args[0], axes_of(call))
        elif name in _RESHAPING:
            source, shape = call.args[0], shape_of(call)
            if source in self._permuted and math.prod(shape_of(source)) == math.prod(shape):
                result = self._reshape_permuted(source, shape, variable)
            else:
                result = self._reshape(source, shape)
        elif name in ELEMENTWISE:
            result = self._elementwise(call, variable)
        elif name == "relax.concat":
            result = self._concatenated(call)
        elif name in _REDUCTIONS:
            result = self._reduced(call)
        elif name == _RESIZE:
            result = self._resized(call)
        elif name == "relax.nn.pad" and not any(int(width) for width in call.attrs.pad_width):
            result = call.args[0]
        return result

    def _permute(self, source: Any, axes: tuple[int, ...]) -> Any:
        if source in self._permuted:
            source, before = self._permuted[source]
            axes = tuple(before[axis] for axis in axes)
        shape = shape_of(source)
        if axes == tuple(range(len(axes))):
            return source
        if keeps_memory_order(axes, shape):
            return self._reshape(source, tuple(shape[axis] for axis in axes))
        permuted = self.builder_.emit(relax.op.permute_dims(source, list(axes)))
        self._permuted[permuted] = (source, axes)
        return permuted

    def _reshape(self, source: Any, shape: tuple[int, ...]) -> Any | None:
        if math.prod(shape_of(source)) != math.prod(shape):
            return None  # a broadcast, not a reshape
        source = self._reshaped.get(source, source)
        if shape_of(source) == shape:
            return source
        reshaped = self.builder_.emit(relax.op.reshape(source, list(shape)))
        self._reshaped[reshaped] = source
        return reshaped

    def _reshape_permuted(self, source: Any, shape: tuple[int, ...], variable: Any) -> Any | None:
        """Replace a reshape of a permutation by a permutation of a reshape, if data move less."""
        origin, axes = self._permuted[source]
        passed = move_past_reshape(shape_of(origin), axes, shape)
        still = keeps_memory_order(passed.first, shape_of(origin))
        if not still and not self._undone(variable, passed.last):
            return self._reshape(source, shape)
        first = self._permute(origin, passed.first)
        reshaped = self._reshape(first, passed.shape)
        return self._permute(reshaped, passed.last)

    def _undone(self, variable: Any, axes: tuple[int, ...]) -> bool:
        """Whether a later permutation of a variable cancels the permutation ``axes``."""
        inverse = tuple(axes.index(axis) for axis in range(len(axes)))
        variables = [variable]
        for current in variables:
            for binding in filter(None, self._users.get(current, ())):
                value = binding.value
                name = operator_name(value)
                if name == "relax.permute_dims" and axes_of(value) == inverse:
                    return True
                passing = isinstance(value, relax.TupleGetItem) or name in _PASSING
                if passing and binding.var not in variables:
                    variables.append(binding.var)
        return False

    def _concatenated(self, call: Any) -> Any | None:
        """A permutation of the concatenated inputs, or None if their permutations differ."""
        fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else ()
        moves = [self._permuted[field] for field in fields if field in self._permuted]
        if len(moves) != len(fields) or len({axes for _, axes in moves}) != 1:
            return None
        origins, axes = [origin for origin, _ in moves], moves[0][1]
        axis = axes[int(call.attrs.axis) % len(axes)]
        return self._permute(self.builder_.emit(relax.op.concat(origins, axis=axis)), axes)

    def _splitted(self, call: Any) -> Any | None:
        known = self._permuted.get(call.args[0])
        if known is None:
            return None
        origin, axes = known
        where = call.attrs.indices_or_sections
        numbers = int(where) if hasattr(where, "value") else [int(index) for index in where]
        axis = axes[int(call.attrs.axis) % len(axes)]
        parts = self.builder_.emit(relax.op.split(origin, numbers, axis=axis))
        self._split[parts] = axes
        return parts

    def _reduced(self, call: Any) -> Any | None:
        known = self._permuted.get(call.args[0])
        if known is None or call.attrs.axis is None:
            return None
        origin, axes = known
        reduced = [int(axis) % len(axes) for axis in call.attrs.axis]
        dropped, order = move_past_reduction(axes, reduced)
        reduction = self.builder_.emit(with_args(call, [origin], axis=list(dropped)))
        return self._permute(reduction, axes if call.attrs.keepdims else order)

    def _resized(self, call: Any) -> Any | None:
        """A resize of images in the layout that they have before the permutation."""
        source = call.args[0]
        if (
            shape_of(source) == shape_of(call)
            and str(call.attrs.coordinate_transformation_mode) in _EXACT
        ):
            return source
        known = self._permuted.get(source)
        layout = str(call.attrs.layout)
        if known is None or len(layout) != len(known[1]):
            return None
        origin, axes = known
        before = "".join(layout[axes.index(position)] for position in range(len(layout)))
        if before not in {"NCHW", "NHWC"}:
            return None
        resized = with_args(call, [origin, call.args[1]], layout=before)
        return self._permute(self.builder_.emit(resized), axes)

    def _elementwise(self, call: Any, variable: Any) -> Any | None:
        """A permutation of the operator's result, or None if its inputs' permutations differ."""
        shape = shape_of(call)
        axes = None
        arguments = []
        constants = {}
        for position, argument in enumerate(call.args):
            constant = isinstance(argument, tvm.ir.GenericConst)
            if constant or not _is_tensor(argument) or not shape_of(argument):
                if constant and math.prod(shape_of(argument)) > 1:
                    constants[position] = array_of(argument)
                arguments.append(argument)
                continue
            known = self._permuted.get(argument)
            if known is None or shape_of(argument) != shape or (axes and known[1] != axes):
                return None
            axes = known[1]
            arguments.append(known[0])
        if axes is None or (constants and hasattr(call.attrs, "axis")):
            return None  # per-channel quantization belongs to an axis
        # Unless a later permutation cancels it, the permutation might be computed twice.
        if constants and not self._undone(variable, axes):
            return None
        for position, array in constants.items():
            whole = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
            inverse = [axes.index(axis) for axis in range(len(axes))]
            moved = np.ascontiguousarray(whole.transpose(inverse))
            arguments[position] = relax.const(moved, str(array.dtype))
        return self._permute(self.builder_.emit(with_args(call, arguments)), axes)


def _is_tensor(expression: Any) -> bool:
    return static_shape(getattr(expression, "ty", None)) is not None

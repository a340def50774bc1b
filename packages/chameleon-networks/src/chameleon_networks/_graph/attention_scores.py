"""Finds the scores of attention: the input of a softmax, with its scale and its masks."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_networks._graph.constants import array_of
from chameleon_networks._graph.relax_utils import operator_name, relax, shape_of, tvm
from chameleon_networks._graph.strided_views import rearrangement_of, scalar_of

_NEUTRAL = frozenset(
    f"relax.{name}"
    for name in ("reshape", "expand_dims", "squeeze", "flatten", "broadcast_to", "astype")
)
_MASK_VALUE = -1e4
"""Networks replace masked scores by this number or a lower one."""
_FLOAT32_MIN = float(np.finfo(np.float32).min)
_PARTS = {"broadcast_to", "permute_dims", "strided_slice", "take"}
"""Operators that give some numbers of their first tensor."""
_ROW_TEST_OPERATORS = {"equal", "astype", "max", "reshape", "any", "logical_not"}
"""Operators of the test whether all scores of a row are minus infinity."""


@attrs.frozen(kw_only=True, eq=False)
class Mask:
    """An expression that is added to attention scores.

    Attributes:
        value: An array if the mask is constant, else an expression of the graph.
        shape: The shape of the mask.
        scores: The shape of the scores that the mask is added to.
        replaces: Whether the mask replaces the scores where it is not 0, and is not added there.
        finite: Whether it is known that no number of the mask is infinite.
    """

    value: NDArray[Any] | Any
    shape: tuple[int, ...]
    scores: tuple[int, ...]
    replaces: bool = False
    finite: bool = False


@attrs.frozen(kw_only=True, eq=False)
class SoftmaxInput:
    """The input of a softmax: scores of attention.

    Attributes:
        product: The variable that is the product of queries and keys.
        factor: The factor that the product is multiplied by.
        masks: The masks that are added to the product.
        shape: The shape of the scores. If they are reshaped before the softmax, the shape with the
            most axes.
        members: The variables on the way to the softmax, ``product`` included.
        guarded: Whether the network replaces the softmax of rows that are hidden by zeros.
    """

    product: Any
    factor: float
    masks: tuple[Mask, ...]
    shape: tuple[int, ...]
    members: tuple[Any, ...]
    guarded: bool = False


class SoftmaxInputFinder:
    """Finds the input of a softmax by following a graph backwards."""

    def __init__(self, values: Mapping[Any, Any]) -> None:
        self._values = values

    def of_powers(self, tensor: Any) -> SoftmaxInput | None:
        """The input of the softmax that computes a tensor, or None."""
        # The tensor may be reshaped, and torch replaces fully masked rows by zeros.
        tensor, passed = self._without_neutral(tensor)
        call = self._call(tensor)
        is_guarded = _name(call) == "where"
        if is_guarded:
            guarded = self._guarded(call)
            if guarded is None:
                return None
            passed = (*passed, tensor, *guarded[1])
            tensor = guarded[0]
            call = self._call(tensor)
        if _name(call) != "nn.softmax":
            return None
        rank = len(shape_of(call))
        if int(call.attrs.axis) % rank != rank - 1 or str(call.ty.dtype) != "float32":
            return None
        scores = self._scores(call.args[0])
        if scores is None:
            return None
        return attrs.evolve(_with_members(scores, tensor, *passed), guarded=is_guarded)

    def _scores(self, tensor: Any) -> SoftmaxInput | None:
        call = self._call(tensor)
        name = _name(call)
        if name == "matmul":
            return SoftmaxInput(
                product=tensor, factor=1.0, masks=(), shape=shape_of(tensor), members=(tensor,)
            )
        scores = None
        if _is_neutral(call):
            scores = self._scores(call.args[0])
        elif name in {"multiply", "divide"}:
            scores = self._scaled(call, name)
        elif name == "maximum":
            # Networks bound masked scores to keep them finite; they stay masked.
            number = scalar_of(call.args[1])
            scores = (
                self._scores(call.args[0]) if number is not None and number < _MASK_VALUE else None
            )
        elif name == "add":
            scores = self._added(call)
        elif name == "where":
            scores = self._hidden(call)
        return None if scores is None else _with_members(scores, tensor)

    def _scaled(self, call: Any, name: str) -> SoftmaxInput | None:
        left, right = call.args
        if name == "multiply" and scalar_of(left) is not None:
            left, right = right, left
        number = scalar_of(right)
        scores = None if not number else self._scores(left)
        if number is None or scores is None or scores.masks:
            return None
        factor = 1.0 / number if name == "divide" else number
        return attrs.evolve(scores, factor=scores.factor * factor)

    def _added(self, call: Any) -> SoftmaxInput | None:
        shape = shape_of(call)
        for tensor, other in (call.args, reversed(call.args)):
            scores = self._scores(tensor)
            if scores is None or shape_of(tensor) != shape or str(other.ty.dtype) != "float32":
                continue
            constant = isinstance(other, tvm.ir.GenericConst)
            value = array_of(other) if constant else other
            finite = not constant and self._is_finite(other)
            mask = Mask(value=value, shape=shape_of(other), scores=shape, finite=finite)
            return _with_mask(scores, mask)
        return None

    def _is_finite(self, tensor: Any) -> bool:
        """Whether a mask is made in a way that gives no infinite numbers in usual networks."""
        call = self._call(tensor)
        while _is_neutral(call) or _name(call) in _PARTS:
            call = self._call(call.args[0])
        if _name(call) == "where":
            numbers = [scalar_of(part) for part in call.args[1:]]
            return all(number is not None and math.isfinite(number) for number in numbers)
        # Sums of the lowest numbers are infinite, and so may inputs of the network be.
        return call is not None and _name(call) not in {"add", "subtract"}

    def _hidden(self, call: Any) -> SoftmaxInput | None:
        """Scores masked by ``where`` with a large negative number, as a sum with a mask."""
        seen, *tensors = call.args
        numbers = [scalar_of(tensor) for tensor in tensors]
        for position, number in enumerate(numbers):
            if number is None or number > _MASK_VALUE:
                continue
            tensor = tensors[1 - position]
            scores = self._scores(tensor)
            if scores is None or shape_of(tensor) != shape_of(call):
                continue
            # Added to a score, the smallest float32 number absorbs it, as if it replaced the score.
            low = number if math.isinf(number) else _FLOAT32_MIN
            pair = (low, 0.0) if position == 0 else (0.0, low)
            value: Any
            if isinstance(seen, tvm.ir.GenericConst):
                value = np.where(array_of(seen), *pair).astype(np.float32)
            else:
                value = relax.op.where(seen, *(relax.const(bound, "float32") for bound in pair))
            mask = Mask(
                value=value,
                shape=shape_of(seen),
                scores=shape_of(call),
                replaces=True,
                finite=math.isfinite(number),
            )
            return _with_mask(scores, mask)
        return None

    def _guarded(self, call: Any) -> tuple[Any, tuple[Any, ...]] | None:
        """A softmax with zeros for fully masked rows, and the variables of that test, or None."""
        condition, zeros, softmax = call.args
        softmax, passed = self._without_neutral(softmax)
        constant = isinstance(zeros, tvm.ir.GenericConst)
        if _name(self._call(softmax)) != "nn.softmax" or not constant or array_of(zeros).any():
            return None
        if isinstance(condition, tvm.ir.GenericConst):
            return None if array_of(condition).any() else (softmax, passed)
        test = self._row_test(condition, softmax)
        return None if test is None else (softmax, (*passed, *test))

    def _row_test(self, condition: Any, softmax: Any) -> tuple[Any, ...] | None:
        """The variables of a test whether all scores of a row are minus infinity, or None."""
        # torch tests the scores, its ONNX exporter the softmax, and ONNX's ``Attention`` the mask.
        passed = []
        while True:
            test = self._call(condition)
            if test is None:
                return None
            passed.append(condition)
            # ``x == 0`` negates a test.
            if _name(test) == "isnan" or (_name(test) == "equal" and scalar_of(test.args[1])):
                break
            if _name(test) not in _ROW_TEST_OPERATORS:
                return None
            condition = test.args[0]
        tested, scores = test.args[0], self._call(softmax).args[0]
        if _name(test) == "isnan":
            same = self._without_neutral(tested)[0].same_as(softmax)
        else:
            same = tested.same_as(scores)
            if not same and self._is_of_mask(tested, scores):
                passed.append(tested)
                same = True
            same = same and scalar_of(test.args[1]) == -math.inf
        return tuple(passed) if same else None

    def _is_of_mask(self, tested: Any, scores: Any) -> bool:
        """Whether a tensor is the maximum of each row of a mask that is added to scores."""
        added = self._call(self._without_neutral(scores)[0])
        largest = self._call(tested)
        if _name(added) != "add" or _name(largest) != "max":
            return False
        mask = largest.args[0]
        axes = [int(axis) % len(shape_of(mask)) for axis in largest.attrs.axis or ()]
        return axes == [len(shape_of(mask)) - 1] and any(mask.same_as(x) for x in added.args)

    def _without_neutral(self, tensor: Any) -> tuple[Any, tuple[Any, ...]]:
        passed = []
        while _is_neutral(call := self._call(tensor)):
            passed.append(tensor)
            tensor = call.args[0]
        return tensor, tuple(passed)

    def _call(self, tensor: Any) -> Any:
        """The operator call that a variable is bound to, or None."""
        value = self._values.get(tensor) if isinstance(tensor, relax.Var) else None
        return value if operator_name(value) else None


def _name(call: Any) -> str:
    return operator_name(call).removeprefix("relax.")


def _is_neutral(call: Any) -> bool:
    """Whether a call keeps the numbers of a tensor, their dtype and their order in memory."""
    if call is None or str(call.op.name) not in _NEUTRAL:
        return False
    before, after = call.args[0].ty, call.ty
    return str(before.dtype) == str(after.dtype) and math.prod(shape_of(call)) == math.prod(
        shape_of(call.args[0])
    )


def _with_members(scores: SoftmaxInput, *members: Any) -> SoftmaxInput:
    shape = max((scores.shape, *(shape_of(member) for member in members[:1])), key=len)
    return attrs.evolve(scores, members=(*scores.members, *members), shape=shape)


def _with_mask(scores: SoftmaxInput, mask: Mask) -> SoftmaxInput:
    return attrs.evolve(scores, masks=(*scores.masks, mask))


_CERTAIN_MASK_VALUE = -1e9
"""A mask with this value or a lower one masks a key, whatever its score is."""
RANK = 4
"""Number of the axes of scores: batch, heads, queries, keys."""


def scores_shape(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """The shape of scores, with four axes: (batch, heads, queries, keys)."""
    padded = (*(1,) * (RANK - len(shape)), *shape)
    *batch, heads, queries, keys = padded
    return (math.prod(batch), heads, queries, keys)


@attrs.frozen(kw_only=True, eq=False)
class Masking:
    """The sum of all masks that are added to scores, with axes (batch, heads, queries, keys).

    Attributes:
        constant: The sum of the constant masks, or None.
        computed: The sum of the other masks as an expression, or None.
        computed_shape: The shape of ``computed``.
        gives_nan: Whether a row that is hidden by minus infinity gives NaN. Kernels give zeros.
    """

    constant: NDArray[Any] | None = None
    computed: Any = None
    computed_shape: tuple[int, ...] = ()
    gives_nan: bool = False

    @property
    def causal(self) -> bool:
        """Whether the mask only hides later keys from each query."""
        if self.constant is None or self.computed is not None:
            return False
        seen = np.tri(*self.constant.shape[2:], dtype=np.bool_)
        later = self.constant[..., ~seen]
        return bool(
            later.size
            and (later <= _CERTAIN_MASK_VALUE).all()
            and not self.constant[..., seen].any()
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the mask that a kernel must add, or an empty tuple without a mask."""
        if self.computed is not None:
            return self._broadcast_shape(())
        if self.constant is None or self.causal or not self.constant.any():
            return ()
        return self.constant.shape

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The expression of the mask that a kernel must add, as a tuple; empty without a mask."""
        if not self.shape:
            return ()
        if self.computed is None and self.constant is not None:
            hidden = (self.constant == -np.inf).all(-1, keepdims=True)
            array = np.where(hidden & self.gives_nan, np.nan, self.constant)
            return (relax.const(np.ascontiguousarray(array, np.float32)),)
        total = self.total
        if self.gives_nan:
            least, nan = (relax.const(number, "float32") for number in (-np.inf, np.nan))
            hidden = relax.op.equal(relax.op.max(total, -1, keepdims=True), least)
            total = relax.op.where(hidden, nan, total)
        return (total,)

    @property
    def total(self) -> Any:
        """The expression of the sum of all masks."""
        if self.constant is None:
            return self.computed
        constant = relax.const(np.ascontiguousarray(self.constant, np.float32))
        return constant if self.computed is None else relax.op.add(self.computed, constant)

    def replaced(self, value: Any, shape: tuple[int, ...]) -> Masking:
        """These masks, replaced by another one where that is not 0."""
        if isinstance(value, np.ndarray) and self.computed is None:
            before = 0.0 if self.constant is None else self.constant
            return attrs.evolve(self, constant=np.where(value != 0, value, before))
        if isinstance(value, np.ndarray):
            value = relax.const(np.ascontiguousarray(value, np.float32))
        if self.computed is None and self.constant is None:
            return attrs.evolve(self, computed=value, computed_shape=shape)
        zero = relax.const(0.0, "float32")
        return attrs.evolve(
            self,
            constant=None,
            computed=relax.op.where(relax.op.equal(value, zero), self.total, value),
            computed_shape=self._broadcast_shape(shape),
        )

    def added(self, value: Any, shape: tuple[int, ...]) -> Masking:
        """These masks, and another one added to them."""
        if isinstance(value, np.ndarray):
            before = 0.0 if self.constant is None else self.constant
            with np.errstate(over="ignore"):  # the sum of the lowest numbers is infinite
                return attrs.evolve(self, constant=before + value)
        return attrs.evolve(
            self,
            computed=value if self.computed is None else relax.op.add(self.computed, value),
            computed_shape=tuple(np.broadcast_shapes(self.computed_shape, shape)),
        )

    def _broadcast_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of these masks and of an array of another shape together."""
        constant = () if self.constant is None else self.constant.shape
        return tuple(np.broadcast_shapes(self.computed_shape, constant, shape))


def masking_of(masks: Sequence[Mask], scores: tuple[int, ...], *, guarded: bool) -> Masking | None:
    """Add all masks of an attention, or return None if a mask has a shape that no kernel reads."""
    finite = len(masks) == 1 and masks[0].finite
    masking = Masking(gives_nan=not guarded and not finite)
    for mask in masks:
        shape = _mask_shape(mask, scores)
        if shape is None:
            return None
        value = mask.value
        if isinstance(value, np.ndarray):
            value = value.reshape(shape)
        elif mask.shape != shape:
            value = relax.op.reshape(value, list(shape))
        masking = (masking.replaced if mask.replaces else masking.added)(value, shape)
    return masking


def _mask_shape(mask: Mask, scores: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape of a mask with the axes (batch, heads, queries, keys), or None."""
    rank = len(mask.scores)
    shape = (*(1,) * (rank - len(mask.shape)), *mask.shape)
    leading, whole = shape[:-2], mask.scores[:-2]
    last = shape[-2:]
    if math.prod(leading) == 1:
        return (1, 1, *last)
    if leading == whole:
        return (*scores[:2], *last)
    if rank < RANK or scores_shape(mask.scores) != scores:
        return None
    *batch, heads = leading
    if math.prod(batch) == 1 or tuple(batch) == tuple(whole[:-1]):
        return (math.prod(batch), heads, *last)
    return None


def readers_of(
    inputs: Sequence[Any],
    members: Collection[Any],
    products: tuple[Any, Any],
    values: Mapping[Any, Any],
    users: Mapping[Any, Sequence[Any]],
) -> tuple[tuple[Any, ...], ...] | None:
    """The variables that read each operand; None if the dtype of the attention must not change."""
    # It must not if other operators read an operand that is rearranged for the attention.
    readers: list[dict[Any, None]] = [{} for _ in inputs]
    between: set[Any] = set()
    scores, mixed = products
    operands = [*((side, scores) for side in values[scores].args), (values[mixed].args[1], mixed)]
    for operand, product in operands:
        current, reader = operand, product
        while (position := _position_of(current, inputs)) is None:
            value = values.get(current)
            step = rearrangement_of(value, values)
            if step is None:
                return None
            reader = value.tuple_value if isinstance(value, relax.TupleGetItem) else current
            between.update((current, reader))
            current = step[0]
        readers[position][reader] = None
    ours = between.union(members)
    read = [user for variable in between for user in users[variable]]
    if any(user is None or user.var not in ours for user in read):
        return None
    return tuple(tuple(variables) for variables in readers)


def _position_of(tensor: Any, inputs: Sequence[Any]) -> int | None:
    return next((index for index, source in enumerate(inputs) if source.same_as(tensor)), None)

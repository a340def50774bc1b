"""Vectorizes reductions over neighbouring elements, with partial results in the lanes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import attrs
import ml_dtypes

from chameleon_tvm._emit import sequence
from chameleon_tvm._quick_tvm import Schedule, tirx, tvm
from chameleon_tvm._spaces.loops.trees import find_nodes, is_element, structural_map, substitute
from chameleon_tvm._spaces.loops.vectors import counted_loop, lane_loop, reads_buffer
from chameleon_tvm._types import FLOAT32

PARTIAL_VECTORS = 4
"""Number of vectors of partial sums. Successive additions to one vector wait for each other, but
additions to four vectors can overlap."""

TERMS_TOGETHER = 8
"""Number of terms of float32 that are added up before their sum is added to a number in float64.
With more, the sum of a tensor is less accurate than that of torch, which computes in float32."""

MAX_PARTS = 64
"""Largest number of parts into which a loop is split. Each of many threads gets several parts, so
that all threads end at about the same time."""

MIN_PARTS = 8
"""Smallest number of parts that keep all threads busy."""

MIN_PARALLEL_OPERATIONS = 16_384
"""Number of operations from which several threads pay. With fewer, waking the other threads (some
microseconds) costs more than they save."""

_INITIAL_BLOCK = "_init"
"""The end of a block's name if TVM made the block of a reduction's initial value."""
_PADDING_BLOCK = "pad_temp"
"""The name of a block that pads the input of a pooling, with the number at which maxima begin."""


def iterator_positions(schedule: Schedule, block: Any) -> tuple[list[int], list[int]]:
    """Positions of a block's spatial iterators and of its reduction iterators."""
    iterators = schedule.get(block).iter_vars
    spatial = [
        number for number, axis in enumerate(iterators) if axis.iter_type == tirx.IterVar.DataPar
    ]
    return spatial, [number for number in range(len(iterators)) if number not in spatial]


_IDENTITIES = {tirx.Add: 0.0, tirx.Max: -math.inf, tirx.Min: math.inf, tirx.Mul: 1.0}


def partial_vectors(extent: int, lanes: int, most: int = PARTIAL_VECTORS) -> int:
    """Number of vectors of terms that are added up side by side, a power of two."""
    return 1 << (min(most, extent // lanes).bit_length() - 1)


@attrs.frozen(kw_only=True)
class _Reduction:
    """A store that combines an element with a term: by sum, product, maximum or minimum.

    Attributes:
        kind: The TensorIR class of the operation, such as ``tirx.Add``.
        term: The expression that is combined with the element, which may have a narrower dtype.
        partial: The array of partial results.
    """

    store: Any
    kind: Any
    term: Any
    partial: Any

    @classmethod
    def of(cls, store: Any, lanes: int, width: int) -> _Reduction | None:
        """Recognize a statement that adds to a stored element (a reduction), or return None."""
        value, dtype = store.value, str(store.buffer.dtype)
        kind = next((kind for kind in _IDENTITIES if isinstance(value, kind)), None)
        if kind is None or not dtype.startswith(("float", "int")):
            return None
        term = _term(store)
        if term is None or reads_buffer(term, store.buffer):
            return None
        narrow = narrow_term(store)
        width = width if narrow is None else lanes
        return cls(
            store=store,
            kind=kind,
            term=term if narrow is None else narrow,
            partial=tirx.decl_buffer([width], dtype, f"{store.buffer.name}_partial"),
        )

    @property
    def is_wide(self) -> bool:
        """Whether terms of float32 are added up in float64."""
        return str(self.partial.dtype) != str(self.term.ty)

    @property
    def width(self) -> int:
        """Number of partial results."""
        return int(self.partial.shape[0])

    def clear(self, lane: Any) -> Any:
        """Statement that sets a partial result to the identity."""
        identity = _identity(self.kind, str(self.partial.dtype))
        return tirx.BufferStore(self.partial, identity, [lane])

    def add(self, lane: Any, term: Any) -> Any:
        """Statement that combines a partial result with a term."""
        wide = term.astype(str(self.partial.dtype))
        total = self.kind(tirx.BufferLoad(self.partial, [lane]), wide)
        return tirx.BufferStore(self.partial, total, [lane])

    def finish(self, zero: Any) -> Any:
        """The statement that adds the total of the partial results to the stored element."""
        element = tirx.BufferLoad(self.store.buffer, list(self.store.indices))
        total = self.kind(element, tirx.BufferLoad(self.partial, [zero]))
        return tirx.BufferStore(self.store.buffer, total, list(self.store.indices))


def _term(store: Any) -> Any | None:
    """The operand that a store combines with its element, or None."""
    sides = [store.value.a, store.value.b]
    own = [is_element(side, store) for side in sides]
    return sides[own.index(False)] if sum(own) == 1 else None


def narrow_term(store: Any) -> Any | None:
    """The number of float32 that a store adds to its element of float64, or None."""
    term = _term(store) if isinstance(store.value, tirx.Add) else None
    if not isinstance(term, tirx.Cast) or str(term.ty) != "float64":
        return None
    return term.value if str(term.value.ty) == FLOAT32 else None


def terms_together(term: Any) -> int:
    """The number of terms that are added up before their sum is added to a number in float64."""
    # Longer code does not pay if a term is more than a number of one array.
    if find_nodes(term, (tirx.Let, tirx.Div)):
        return 1
    first, *others = find_nodes(term, tvm.ir.TensorLoad)
    same = all(first.source.same_as(load.source) for load in others)
    return TERMS_TOGETHER if same else PARTIAL_VECTORS


def pairwise_sum(terms: Sequence[Any]) -> Any:
    """The sum of terms as a tree. It is exact for powers of two of equal numbers."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return pairwise_sum(terms[:half]) + pairwise_sum(terms[half:])


def _identity(kind: Any, dtype: str) -> Any:
    number = _IDENTITIES[kind]
    if dtype.startswith("float"):
        return tirx.FloatImm(dtype, number)
    if math.isinf(number):
        return (tirx.min_value if number < 0 else tirx.max_value)(dtype)
    return tirx.IntImm(dtype, int(number))


def vectorize_reduction(loops: Sequence[Any], stores: Sequence[Any], lanes: int) -> Any | None:
    """Vectorize loops in which each statement reduces numbers to one element, or return None.

    Several terms of float32 are added up before their sum is added to a number in float64.

    Args:
        loops: The innermost loop, or a loop around it and the innermost loop.
        stores: The statements of the innermost loop.
        lanes: Number of elements of a vector.
    """
    *around, loop = loops
    extent, dtype = int(loop.extent), str(loop.loop_var.ty)
    width = lanes * partial_vectors(extent, lanes)
    reductions = [
        reduction
        for store in stores
        if (reduction := _Reduction.of(store, lanes, width)) is not None
    ]
    if len(reductions) < len(stores):
        return None
    counts = [width, lanes]
    if all(reduction.is_wide for reduction in reductions):
        most = min(terms_together(reduction.term) for reduction in reductions)
        together = partial_vectors(extent, lanes, max(most, PARTIAL_VECTORS))
        counts = [lanes * together >> halvings for halvings in range(together.bit_length())]

    def terms(count: int, start: Any, known: int = 0) -> Any:
        """The statements that add a vector of terms, of which ``known`` were added before."""

        def body(reduction: _Reduction, width: int, lane: Any) -> Any:
            def term_at(place: Any) -> Any:
                term = substitute(reduction.term, loop.loop_var, start + place)
                identity = _identity(reduction.kind, str(term.ty))
                return tirx.Select(lane < known, identity, term) if known else term

            offsets = range(0, count, width)
            return reduction.add(lane, pairwise_sum([term_at(lane + at) for at in offsets]))

        pairs = [(reduction, min(count, reduction.width)) for reduction in reductions]
        return sequence([lane_loop(dtype, pair[1], partial(body, *pair)) for pair in pairs])

    statements, done = [], 0
    for count in dict.fromkeys(counts):
        steps = (extent - done) // count
        step = tirx.Var(f"{loop.loop_var.name}_step", dtype)
        if steps:
            statements.append(counted_loop(step, steps, terms(count, step * count + done)))
        done += steps * count
    if done < extent:
        last = extent - lanes
        statements.append(terms(lanes, tirx.IntImm(dtype, last), done - last))
    for outer in around:
        body = sequence(statements)
        statements = [counted_loop(outer.loop_var, int(outer.extent), body)]
    zero = tirx.IntImm(dtype, 0)
    cleared = [lane_loop(dtype, reduction.width, reduction.clear) for reduction in reductions]
    return tirx.SeqStmt(
        [
            *(tirx.AllocBuffer(reduction.partial) for reduction in reductions),
            *cleared,
            *statements,
            *(halving for reduction in reductions for halving in _halvings(reduction, dtype)),
            *(reduction.finish(zero) for reduction in reductions),
        ]
    )


def _halvings(reduction: _Reduction, dtype: str) -> Iterator[Any]:
    """The statements that combine all partial results in the first one."""
    # The halves are added to each other, which needs few vector steps instead of many scalar
    # additions.
    width = reduction.width
    while width > 1:
        width //= 2
        yield lane_loop(dtype, width, partial(_halve, reduction, width))


def _halve(reduction: _Reduction, width: int, lane: Any) -> Any:
    return reduction.add(lane, tirx.BufferLoad(reduction.partial, [lane + width]))


_SOFTMAX_MAXIMA = "T_softmax_maxelem"
"""The name of the maxima that a softmax subtracts. The sum of its exponentials keeps NaN."""


def keeping_nan(statement: Any) -> Any:
    """Let maxima and minima along axes be NaN if a number is, as those of torch and NumPy are.

    TVM's is the second operand if an operand is NaN.

    Args:
        statement: Loops and stores of TensorIR.
    """

    def propagate(store: Any) -> Any:
        extreme, buffer = store.value, store.buffer
        reduces = isinstance(extreme, tirx.Max | tirx.Min) and is_element(extreme.a, store)
        if (
            not reduces
            or "float" not in str(buffer.dtype)
            or str(buffer.name).startswith(_SOFTMAX_MAXIMA)
        ):
            return store
        # The compiler simplifies a comparison of a number with itself to true.
        is_number = extreme.a <= tirx.FloatImm(str(buffer.dtype), math.inf)
        value = tirx.Select(is_number, extreme, extreme.a)
        return tirx.BufferStore(buffer, value, list(store.indices))

    return structural_map(statement, (tirx.BufferStore, propagate))


REFUSED = (tvm.error.InternalError, tvm.s_tir.schedule.ScheduleError)
"""Errors that TVM raises if a schedule step cannot be applied to a function, for example because it
calls a library or has no loops."""


def divide_reduction(schedule: Schedule, block: Any, lanes: int) -> Any:
    """Divide a long reduction to few numbers into parts, and return the block that reduces a part.

    Other blocks are returned unchanged. TVM divides maxima only if they begin at a finite number.
    """
    try:
        _rfactor(schedule.copy(), block, lanes)
    except REFUSED:
        # TVM can divide no reductions of bool, and few reductions of user-defined functions.
        return block
    return _rfactor(schedule, block, lanes)


def _rfactor(schedule: Schedule, block: Any, lanes: int) -> Any:
    spatial, reduced = iterator_positions(schedule, block)
    loops = schedule.get_loops(block)
    extents = [int(schedule.get(loop).extent) for loop in loops]
    pays = (
        math.prod(extents[: len(spatial)]) < MIN_PARTS
        and math.prod(extents) >= MIN_PARALLEL_OPERATIONS
    )
    if not (pays and reduced and reduced == [*range(len(spatial), len(loops))]):
        return block
    long_axes = (number for number in reduced if extents[number] >= MIN_PARTS)
    axis = next(long_axes, reduced[-1])
    part, inner = loops[axis], []
    if extents[axis] > MAX_PARTS:
        multiple = PARTIAL_VECTORS * lanes if axis == reduced[-1] else 1
        limit = math.ceil(extents[axis] / MAX_PARTS)
        part, *inner = split_evenly(schedule, part, max(multiple, limit), multiple)
    others = [loop for number, loop in enumerate(loops) if number != axis]
    schedule.reorder(part, *others[:axis], *inner, *others[axis:])
    return schedule.rfactor(part, 0)


def split_evenly(schedule: Schedule, loop: Any, limit: int, lanes: int) -> list[Any]:
    """Split a loop into nearly equal parts of whole vectors, as far as possible."""
    extent = int(schedule.get(loop).extent)
    width = lanes * math.ceil(extent / math.ceil(extent / limit) / lanes)
    return list(schedule.split(loop, [None, min(width, extent)]))


def with_initial_extrema(function: Any, *, infinite: bool) -> Any:
    """Change the number at which maxima and minima begin.

    Frameworks begin at infinity. TVM begins at the largest finite number of the dtype, so that the
    maximum of infinite numbers would be finite.

    Args:
        function: A ``PrimFunc`` of TVM's blocks.
        infinite: Whether maxima and minima shall begin at infinity.
    """

    def replace_number(number: Any) -> Any:
        value, dtype = float(number.value), str(number.ty)
        limit = float(ml_dtypes.finfo(dtype).max)
        old, new = (limit, math.inf) if infinite else (math.inf, limit)
        return tirx.FloatImm(dtype, math.copysign(new, value)) if abs(value) == old else number

    def mapped(block: Any) -> Any:
        body, init = block.body, block.init
        if init is not None:
            init = structural_map(init, (tirx.FloatImm, replace_number))
        elif block.name_hint.endswith((_INITIAL_BLOCK, _PADDING_BLOCK)):
            body = structural_map(body, (tirx.FloatImm, replace_number))
        if body.same_as(block.body) and (init is None or init.same_as(block.init)):
            return block
        head = block.iter_vars, block.reads, block.writes, block.name_hint
        tail = block.alloc_buffers, block.match_buffers, block.annotations
        return tvm.s_tir.SBlock(*head, body, init, *tail)

    body = structural_map(function.body, (tvm.s_tir.SBlock, mapped))
    return function if body.same_as(function.body) else function.with_body(body)

"""Kernels that sort (``argsort``, ``topk``). Those of TVM call a function of its run time."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
from chameleon_tvm.api import array_type, emit, tirx

from chameleon_networks._graph.relax_utils import (
    KEY_BITS,
    SORTABLE,
    map_elements,
    mutate,
    opaque_loops,
    relax,
    sort_key,
    tvm,
    with_args,
)

_MOST_INSERTED = 64
"""The largest number of results that are kept in order while the numbers are read."""

_INSERTED_SHARE = 8
"""So many numbers must there be for each result that is kept in order."""

_DIGIT_BITS, _DIGITS = 8, 256
"""Number of bits of a digit of a key, and of a digit's values."""


@relax.expr_functor.mutator
class _SortLowering(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        name = str(getattr(call.op, "name", ""))
        if name not in SORT_LEGALIZATIONS:
            return call
        [data] = call.args
        shape = [int(extent) for extent in data.ty.shape]
        if not math.prod(shape):
            return call
        axis, options = int(call.attrs.axis) % max(len(shape), 1), call.attrs
        rows = [math.prod(shape[:axis]), *shape[axis : axis + 1], math.prod(shape[axis + 1 :])]
        kinds = [call.ty] if isinstance(call.ty, relax.TensorType) else list(call.ty.fields)
        given = str(options.ret_type) if name == "relax.topk" else "indices"
        sort = _Sort(
            data=emit.buffer("x", rows, dtype=str(data.ty.dtype)),
            results=[
                emit.buffer(
                    f"y{number}", [rows[0], int(kind.shape[axis]), rows[2]], dtype=str(kind.dtype)
                )
                for number, kind in enumerate(kinds)
            ],
            values=given != "indices",
            descending=bool(options.largest if name == "relax.topk" else options.descending),
        )
        kernel = self.builder_.add_func(sort.function(), name.removeprefix("relax."))
        source = self.builder_.emit(relax.op.reshape(data, rows))
        flat = [relax.TensorType(list(one.shape), str(one.dtype)) for one in sort.results]
        result = self.builder_.emit(relax.call_tir(kernel, [source], flat))
        parts = [relax.TupleGetItem(result, at) for at in range(len(kinds))]
        parts = parts if len(kinds) > 1 else [result]
        shaped = [
            self.builder_.emit(relax.op.reshape(self.builder_.emit(part), list(kind.shape)))
            for part, kind in zip(parts, kinds, strict=True)
        ]
        return shaped[0] if isinstance(call.ty, relax.TensorType) else relax.Tuple(shaped)


def lower_sorts(module: Any) -> Any:
    """Replace sorts of fixed shapes by parallel kernels."""
    return mutate(module, _SortLowering(module))


@attrs.frozen(kw_only=True, eq=False)
class _Sort:
    """A stable sort along the second of three axes.

    A record is one number of the data: a key, by which records are sorted, and its place. Both are
    one integer if the key has 32 bits.

    Attributes:
        data: The buffer of the numbers.
        results: The buffers of the sorted numbers, of their places, or of both in this order.
        values: Whether the sorted numbers are a result.
        descending: Whether the largest number comes first.
    """

    data: Any
    results: list[Any]
    values: bool
    descending: bool

    @property
    def _length(self) -> int:
        return int(self.data.shape[1])

    @property
    def _count(self) -> int:
        return int(self.results[0].shape[1])

    @property
    def _bits(self) -> int:
        """The number of bits of a key that differ from record to record."""
        return 8 * array_type(str(self.data.dtype)).itemsize

    def function(self) -> Any:
        """The function; its parameters are the data and the results."""
        outer, _, inner = (int(extent) for extent in self.data.shape)
        few = self._count <= _MOST_INSERTED and self._bits <= KEY_BITS
        quick = self._length <= _MOST_INSERTED or self._length >= _INSERTED_SHARE * self._count
        kernel = self._insert if few and quick else self._distribute

        def sort(row: Any) -> Any:
            # A block tells that a row depends on its own numbers alone.
            pairs = {"outer": (row // inner, outer), "inner": (row % inner, inner)}
            ranges = [tvm.ir.Range(0, extent) for _, extent in pairs.values()]
            axes = [
                tirx.IterVar(own, name, tirx.IterVar.DataPar)
                for name, own in zip(pairs, ranges, strict=True)
            ]
            block = tvm.s_tir.SBlock(axes, [], [], "sort", kernel(*(axis.var for axis in axes)))
            return tvm.s_tir.SBlockRealize([at for at, _ in pairs.values()], True, block)

        body = emit.parallel("row", outer * inner, sort)
        return opaque_loops(emit.function([self.data, *self.results], body))

    def _record(self, outer: Any, place: Any, inner: Any) -> list[Any]:
        key = sort_key(emit.load(self.data, [outer, place, inner]))
        if self.descending:
            key = ~key
        if self._bits > KEY_BITS:
            return [key, place]
        high = tirx.Cast("int64", key) << tirx.const(KEY_BITS, "int64")
        return [high | tirx.Cast("int64", place)]

    def _write(self, at: list[Any], record: list[Any]) -> Any:
        outer, _, inner = at
        place = tirx.Cast("int32", record[-1])
        written = [emit.load(self.data, [outer, place, inner])] if self.values else []
        if len(self.results) > len(written):
            written.append(tirx.Cast(str(self.results[-1].dtype), place))
        pairs = zip(self.results, written, strict=True)
        return emit.sequence([emit.store(result, at, value) for result, value in pairs])

    def _insert(self, outer: Any, inner: Any) -> Any:
        """Keep the first records in order, and insert each record that precedes the last one."""
        count = self._count
        kept = emit.buffer("kept", [count], dtype="int64")
        last = tirx.max_value("int64")

        def each(place: Any) -> Any:
            [record] = self._record(outer, place, inner)
            own = tirx.Var("record", "int64")

            def move(number: Any) -> Any:
                # The later of the own record and its neighbor, if the own one is not after both.
                slot = count - 1 - number
                here = tirx.min(own, emit.load(kept, [slot]))
                return emit.store(kept, [slot], tirx.max(emit.load(kept, [slot - 1]), here))

            first = emit.store(kept, [0], tirx.min(own, emit.load(kept, [0])))
            moves = [emit.loop("number", count - 1, move)] if count > 1 else []
            precedes = own < emit.load(kept, [count - 1])
            inserted = emit.when(precedes, emit.sequence([*moves, first]))
            return emit.sequence([tirx.Bind(own, record), inserted])

        def write(at: Any) -> Any:
            return self._write([outer, at, inner], [emit.load(kept, [at])])

        steps = [
            emit.loop("at", count, lambda at: emit.store(kept, [at], last)),
            emit.loop("place", self._length, each),
            emit.loop("at", count, write),
        ]
        return emit.allocate(kept, emit.sequence(steps))

    def _distribute(self, outer: Any, inner: Any) -> Any:
        """Sort by each digit of the keys, the last digit first (Knuth, section 5.2.5)."""
        length, is_short = self._length, self._bits <= KEY_BITS
        kinds = {"records": "int64"} if is_short else {"keys": "int64", "places": "int32"}
        buffers = [emit.buffer(name, [2 * length], dtype=kind) for name, kind in kinds.items()]
        counts = emit.buffer("counts", [_DIGITS], dtype="int32")
        total = emit.buffer("total", [1], dtype="int32")
        passes = self._bits // _DIGIT_BITS
        unused = KEY_BITS if is_short else 0
        # Digits have no sign, and the keys of other dtypes may be negative.
        is_small = self._bits < KEY_BITS and array_type(str(self.data.dtype)).kind in "bu"
        sign = np.array(not is_small, np.int64) << (unused + self._bits - 1)

        def start(place: Any) -> Any:
            key, *others = self._record(outer, place, inner)
            records = zip(buffers, [key ^ tirx.const(int(sign), "int64"), *others], strict=True)
            return emit.sequence([emit.store(one, [place], record) for one, record in records])

        def each_pass(number: Any) -> Any:
            source = (number & 1) * length
            shift = tirx.Cast("int64", number * _DIGIT_BITS + unused)

            def digit(place: Any) -> Any:
                key = emit.load(buffers[0], [source + place])
                return tirx.Cast("int32", (key >> shift) & tirx.const(_DIGITS - 1, "int64"))

            def count(place: Any) -> Any:
                own = tirx.Var("digit", "int32")
                more = emit.store(counts, [own], emit.load(counts, [own]) + 1)
                return emit.sequence([tirx.Bind(own, digit(place)), more])

            def add(value: Any) -> Any:
                own = tirx.Var("count", "int32")
                steps = [
                    tirx.Bind(own, emit.load(counts, [value])),
                    emit.store(counts, [value], emit.load(total, [0])),
                    emit.store(total, [0], emit.load(total, [0]) + own),
                ]
                return emit.sequence(steps)

            def move(place: Any) -> Any:
                own, at = (tirx.Var(name, "int32") for name in ("digit", "at"))
                steps = [
                    tirx.Bind(own, digit(place)),
                    tirx.Bind(at, emit.load(counts, [own])),
                    emit.store(counts, [own], at + 1),
                ]
                for one in buffers:
                    record = emit.load(one, [source + place])
                    steps.append(emit.store(one, [length - source + at], record))
                return emit.sequence(steps)

            zero = tirx.const(0, "int32")
            steps = [
                emit.loop("value", _DIGITS, lambda value: emit.store(counts, [value], zero)),
                emit.store(total, [0], zero),
                emit.loop("place", length, count),
                emit.loop("value", _DIGITS, add),
                emit.loop("place", length, move),
            ]
            return emit.sequence(steps)

        def write(at: Any) -> Any:
            place = at + passes % 2 * length
            return self._write([outer, at, inner], [emit.load(one, [place]) for one in buffers])

        steps = [
            emit.loop("place", length, start),
            emit.loop("pass", tirx.IntImm("int32", passes), each_pass),
            emit.loop("at", self._count, write),
        ]
        return emit.allocate([*buffers, counts, total], emit.sequence(steps))


def _lower_to_keys(builder: Any, call: Any) -> Any:
    """Lower ``argsort`` or ``topk`` to that of integer keys, which TVM sorts as frameworks do."""
    data = call.args[0]
    if str(data.ty.dtype) in SORTABLE:
        return call
    keys = builder.emit(map_elements(builder, sort_key, data, "keys"))
    if str(call.op.name) == "relax.argsort":
        return with_args(call, [keys])
    places = builder.emit(with_args(call, [keys], ret_type="indices"))
    gather = builder.call_te(tvm.topi.gather, data, int(call.attrs.axis), places)
    return relax.Tuple([builder.emit(gather), places])


SORT_LEGALIZATIONS = dict.fromkeys(("relax.argsort", "relax.topk"), _lower_to_keys)
"""Functions that lower sorts to those of TVM's run-time library, by the operator's name."""

"""Kernels for cumulative sums and products (``cumsum``, ``cumprod``), with vectors and threads."""

from __future__ import annotations

import math
from typing import Any

import attrs
from chameleon_tvm.api import emit, tirx

from chameleon_networks._graph.relax_utils import mutate, opaque_loops, relax

INNER_SCANS = 64
"""Number of scans that one thread computes side by side if they lie next to each other."""

ROW_SCANS = 8
"""Number of scans that one thread computes side by side if each scan is a row. So many independent
chains of additions hide the latency of an addition."""

LANES = 8
"""Number of elements of a row that are added up as a vector, by additions of shifted vectors
(Hillis and Steele, Data Parallel Algorithms, 1986)."""

_LONG = 64
"""The shortest row whose elements are added up as vectors."""

_LIMIT = 2**31
"""Tensors with so many elements are left to TVM, because the kernels count in int32."""

SCANS = {"relax.cumsum": (tirx.Add, 0), "relax.cumprod": (tirx.Mul, 1)}


@relax.expr_functor.mutator
class _ScanLowering(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if str(getattr(call.op, "name", "")) not in SCANS:
            return call
        [data] = call.args
        shape = [int(extent) for extent in data.ty.shape]
        axis = 0 if call.attrs.axis is None else int(call.attrs.axis) % len(shape)
        if call.attrs.axis is None:
            shape = [math.prod(shape)]
        if not 0 < math.prod(shape) < _LIMIT:
            return call
        inner = math.prod(shape[axis + 1 :])
        rows = [math.prod(shape[:axis]), shape[axis], *([inner] if inner > 1 else [])]
        kind, identity = SCANS[call.op.name]
        dtypes = str(data.ty.dtype), str(call.ty.dtype)
        function = _scan(rows, dtypes, kind, identity, exclusive=bool(call.attrs.exclusive))
        name = str(call.op.name).removeprefix("relax.")
        kernel = self.builder_.add_func(function, name)
        given = self.builder_.emit(relax.op.reshape(data, rows))
        result = relax.call_tir(kernel, [given], relax.TensorType(rows, dtypes[1]))
        return relax.op.reshape(self.builder_.emit(result), list(call.ty.shape))


def lower_scans(module: Any) -> Any:
    """Replace cumulative sums and products of fixed shapes by vectorized parallel kernels."""
    return mutate(module, _ScanLowering(module))


def _scan(
    rows: list[int], dtypes: tuple[str, str], kind: Any, identity: int, *, exclusive: bool
) -> Any:
    """The kernel of cumulative sums or products along the second of two or three axes."""
    outer, length, *inner = rows
    data, result = (
        emit.buffer(name, rows, dtype=dtype) for dtype, name in zip(dtypes, ("x", "y"), strict=True)
    )
    scan = _Scan(data=data, result=result, kind=kind, identity=identity, exclusive=exclusive)
    if not inner and length >= _LONG and kind is tirx.Add and dtypes in _VECTORS:
        parts = [emit.parallel("row", outer, scan.vectors)]
    else:
        across, width = (inner[0], INNER_SCANS) if inner else (outer, ROW_SCANS)
        whole, rest = divmod(across, width)
        parts = [scan.part(0, width, whole)] if whole else []
        parts += [scan.part(whole * width, rest, 1)] if rest else []
    return opaque_loops(emit.function([data, result], emit.sequence(parts)))


_VECTORS = (("float32", "float32"), ("int32", "int64"), ("int64", "int64"))
"""The dtypes of data and results for which the order of additions matters little."""


@attrs.frozen(kw_only=True, eq=False)
class _Scan:
    """Cumulative sums or products along the second of two or three axes.

    Attributes:
        data: The buffer of the numbers.
        result: The buffer of the sums or products.
        kind: The class of the operation's node.
        identity: The number that changes no result.
        exclusive: Whether a result leaves out the number at its own place.
    """

    data: Any
    result: Any
    kind: Any
    identity: int
    exclusive: bool

    @property
    def _wide(self) -> str:
        """The dtype of sums: as in torch, the error of float32 must not grow with the terms."""
        return "float64" if str(self.result.dtype) == "float32" else str(self.result.dtype)

    def _number(self, place: Any, lanes: int = 1) -> Any:
        number = emit.cast(str(self.result.dtype), emit.load(self.data, place, lanes))
        return emit.cast(self._wide, number)

    def _write(self, place: Any, value: Any, lanes: int = 1) -> Any:
        return emit.store(self.result, place, emit.cast(str(self.result.dtype), value), lanes)

    def vectors(self, row: Any) -> Any:
        """The sums of a row, ``LANES`` elements at a time."""
        length = int(self.data.shape[1])
        [total] = emit.registers(1, LANES, name="total", dtype=self._wide)
        zeros = emit.zero(LANES, self._wide)

        def shifted(vector: Any, distance: int) -> Any:
            places = [at - distance if at >= distance else LANES for at in range(LANES)]
            return tirx.Shuffle([vector, zeros], places)

        def vector(piece: Any) -> Any:
            value, statements = self._number([row, piece * LANES], LANES), []
            for distance in (1, 2, 4):
                variable = tirx.Var("numbers", value.ty)
                statements.append(tirx.Bind(variable, value))
                value = variable + shifted(variable, distance)
            sums = tirx.Var("sums", value.ty)
            within = shifted(sums, 1) if self.exclusive else sums
            last = tirx.Shuffle([sums], [LANES - 1] * LANES)
            return emit.sequence(
                [
                    *statements,
                    tirx.Bind(sums, value),
                    self._write([row, piece * LANES], emit.read(total) + within, LANES),
                    emit.assign(total, emit.read(total) + last),
                ]
            )

        def single(at: Any) -> Any:
            place, sums = [row, at + length // LANES * LANES], emit.load(total, [0])
            add = emit.store(total, [0], sums + self._number(place))
            steps = add, self._write(place, sums)
            return emit.sequence(steps[::-1] if self.exclusive else steps)

        loops = [emit.assign(total, zeros), emit.loop("piece", length // LANES, vector)]
        loops += [emit.loop("single", length % LANES, single)] if length % LANES else []
        return emit.allocate(total, emit.sequence(loops))

    def part(self, start: int, width: int, parts: int) -> Any:
        """The scans from ``start`` on, of which each of ``parts`` iterations computes ``width``."""
        outer, length, *inner = (int(extent) for extent in self.data.shape)
        sums = emit.buffer("sums", [width], dtype=self._wide)

        def scans(row: Any) -> Any:
            def place(step: Any, at: Any) -> list[Any]:
                number = row % parts * width + start + at
                return [row // parts, step, number] if inner else [number, step]

            def clear(at: Any) -> Any:
                return emit.store(sums, [at], tirx.const(self.identity, self._wide))

            def step_of_each(step: Any) -> Any:
                def add(at: Any) -> Any:
                    number = self._number(place(step, at))
                    return emit.store(sums, [at], self.kind(emit.load(sums, [at]), number))

                def write(at: Any) -> Any:
                    return self._write(place(step, at), emit.load(sums, [at]))

                order = (write, add) if self.exclusive else (add, write)
                return emit.sequence([emit.loop("at", width, body) for body in order])

            steps = emit.loop("step", length, step_of_each)
            return emit.sequence([tirx.AllocBuffer(sums), emit.loop("at", width, clear), steps])

        return emit.parallel("row", outer * parts if inner else parts, scans)

"""Kernels for cumulative sums and products (``cumsum``, ``cumprod``), with vectors and threads."""

from __future__ import annotations

import math
from typing import Any

from chameleon_tvm.api import emit, tirx

from chameleon_networks._graph.relax_utils import LOOPS_ATTRIBUTE, mutate, relax, tvm

INNER_SCANS = 64
"""Number of scans that one thread computes side by side if they lie next to each other."""

ROW_SCANS = 8
"""Number of scans that one thread computes side by side if each scan is a row. So many independent
chains of additions hide the latency of an addition."""

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
        rows = [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])]
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
    """The kernel of cumulative sums or products along the second of three axes."""
    outer, length, inner = rows
    data, result = (
        emit.buffer(name, rows, dtype=dtype) for dtype, name in zip(dtypes, ("x", "y"), strict=True)
    )
    across, width = (outer, ROW_SCANS) if inner == 1 else (inner, INNER_SCANS)

    def part(start: int, width: int, parts: int) -> Any:
        # As in torch, the error of a sum of float32 must not grow with its number of terms.
        wide = "float64" if dtypes[1] == "float32" else dtypes[1]
        sums = emit.buffer("sums", [width], dtype=wide)

        def scans(row: Any) -> Any:
            def place(step: Any, at: Any) -> list[Any]:
                number = row % parts * width + start + at
                return [number, step, 0] if inner == 1 else [row // parts, step, number]

            def clear(at: Any) -> Any:
                return emit.store(sums, [at], tirx.const(identity, wide))

            def step_of_each(step: Any) -> Any:
                def add(at: Any) -> Any:
                    number = emit.load(data, place(step, at)).astype(dtypes[1]).astype(wide)
                    return emit.store(sums, [at], kind(emit.load(sums, [at]), number))

                def write(at: Any) -> Any:
                    total = emit.load(sums, [at]).astype(dtypes[1])
                    return emit.store(result, place(step, at), total)

                order = (write, add) if exclusive else (add, write)
                return emit.sequence([emit.loop("at", width, body) for body in order])

            steps = emit.loop("step", length, step_of_each)
            return emit.sequence([tirx.AllocBuffer(sums), emit.loop("at", width, clear), steps])

        return emit.parallel("row", parts if inner == 1 else outer * parts, scans)

    whole, rest = divmod(across, width)
    parts = [part(0, width, whole)] if whole else []
    parts += [part(whole * width, rest, 1)] if rest else []
    root = tvm.s_tir.SBlock([], [], [], "root", emit.sequence(parts))
    function = emit.function([data, result], tvm.s_tir.SBlockRealize([], tirx.const(True), root))
    return function.with_attr({"s_tir": True, LOOPS_ATTRIBUTE: True})

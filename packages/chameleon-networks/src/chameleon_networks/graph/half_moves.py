"""What moves or selects numbers, computed on those of two bytes rather than on widened ones."""

from __future__ import annotations

from typing import Any

from chameleon_tvm.quick_tvm import te, tirx

from chameleon_networks.graph.half_steps import ROUND, WIDEN, HalfSteps, widen
from chameleon_networks.graph.relaxed import relax, tvm

_MOVES = frozenset(
    f"relax.{name}"
    for name in ("reshape", "permute_dims", "squeeze", "expand_dims", "flatten", "strided_slice")
)
"""Operators of one tensor that compare no numbers."""
_CONCAT = "relax.concat"
_POOLS = {f"relax.nn.max_pool{rank}d": f"pool{rank}d" for rank in (1, 2, 3)}
"""Max-poolings, and what computes them in TVM's library."""


def with_bits_moved(module: Any) -> Any:
    """The module with moves of widened numbers made before they are widened.

    That is done where all that reads the result rounds it, and gets the bits that there were. Other
    moves stay where they are: one function widens and moves, and attention is known by its moves.

    Args:
        module: an ``IRModule`` of Relax functions in normal form.
    """
    mover = _Mover(module)
    variable = module.get_global_var("main")
    mover.builder_.update_func(variable, mover.visit_expr(module["main"]))
    return relax.transform.DeadCodeElimination()(mover.builder_.get())


@relax.expr_functor.mutator
class _Mover(relax.PyExprMutator):
    """Keeps for every widened variable its bits."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._steps = HalfSteps(module)
        self._bits: dict[Any, Any] = {}
        self._rounded = self._rounded_in(module["main"])

    def _rounded_in(self, function: Any) -> set[Any]:
        """The variables that are read to be rounded, or to be moved and then rounded."""
        found: set[Any] = set()
        other = set(relax.analysis.free_vars(function.body.body))
        bindings = [one for block in function.body.blocks for one in block.bindings]
        for binding in reversed(bindings):
            to_be_rounded = self._steps.source(binding.value, ROUND) is not None or (
                _is_move(binding.value) and binding.var in found
            )
            for variable in relax.analysis.free_vars(binding.value):
                (found if to_be_rounded else other).add(variable)
                found -= other
        return found

    def visit_dataflow_block_(self, block: Any) -> Any:
        # A block's variables cannot be read in another one.
        self._bits.clear()
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: Any) -> None:
        value = self.visit_expr(binding.value)
        inner = isinstance(binding.var, relax.DataflowVar)
        emit = self.builder_.emit if inner else self.builder_.emit_output
        rounded = self._steps.source(value, ROUND)
        if inner and rounded in self._bits:
            self.set_var_remap(binding.var, self._bits[rounded])
            return
        bits = self._steps.source(value, WIDEN)
        if bits is None:
            bits = self._moved(value) if binding.var in self._rounded else None
            value = value if bits is None else widen(self.builder_, bits)
        made = emit(value)
        if bits is not None:
            self._bits[made] = bits
        self.set_var_remap(binding.var, made)

    def _moved(self, value: Any) -> Any | None:
        """The bits of moved numbers; None where they were not widened from two bytes."""
        if not _is_move(value):
            return None
        if str(value.op.name) == _CONCAT:
            fields = value.args[0].fields if isinstance(value.args[0], relax.Tuple) else ()
            parts = [self._bits.get(one) for one in fields]
            if not parts or any(one is None for one in parts):
                return None
            return self.builder_.emit(relax.op.concat(parts, axis=int(value.attrs.axis)))
        bits = self._bits.get(value.args[0])
        if bits is None:
            return None
        if str(value.op.name) in _POOLS:
            return self.builder_.emit(_pooled(self.builder_, bits, value))
        arguments = [bits, *value.args[1:]]
        return self.builder_.emit(relax.Call(value.op, arguments, value.attrs, value.ty_args))


def _pooled(builder: Any, bits: Any, call: Any) -> Any:
    """Max-pooling of numbers of two bytes, in one function with the integers that it compares.

    Args:
        builder: a ``BlockBuilder`` in a block.
        bits: a variable.
        call: the pooling of what it is widened to.
    """
    known = call.attrs
    pool = _POOLS[str(call.op.name)]
    sizes = (known.pool_size, known.strides, known.dilation, known.padding)
    kernel, stride, dilation, padding = ([int(one) for one in size] for size in sizes)

    def made(source: te.Tensor) -> te.Tensor:
        best = getattr(tvm.topi.nn, pool)(
            _keys(source, "int16"),
            kernel=kernel,
            stride=stride,
            dilation=dilation,
            padding=padding,
            pool_type="max",
            ceil_mode=bool(known.ceil_mode),
            layout=str(known.layout),
        )
        return _keys(best, str(source.dtype))

    return builder.call_te(made, bits, primfunc_name_hint="max_" + pool)


def _keys(source: te.Tensor, dtype: str) -> te.Tensor:
    """Numbers of two bytes as integers of the same order, or these as the numbers again.

    Signs and magnitudes become complements of two, and the other way round by the same steps. NaN
    is larger than all numbers where its sign is not set, as that of bfloat16 never is here.

    Args:
        source: the numbers as buffers hold them, or integers.
        dtype: ``int16``, or that of the buffers.
    """

    def key(*place: Any) -> Any:
        bits = tirx.reinterpret("int16", tirx.Cast(str(source.dtype), source(*place)))
        sign = bits >> tirx.IntImm("int16", 15)
        return tirx.reinterpret(dtype, bits ^ (sign & tirx.IntImm("int16", 0x7FFF)))

    return te.compute(source.shape, key, name="keys")


def _is_move(value: Any) -> bool:
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return False
    return str(value.op.name) in {*_MOVES, *_POOLS, _CONCAT}

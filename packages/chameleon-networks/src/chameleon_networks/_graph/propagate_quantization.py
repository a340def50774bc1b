"""Moves dequantize past data movement, like Q/DQ propagation in other compilers.

It also replaces int8 data by uint8, which kernels read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from chameleon_tvm.api import INT8, STORAGE, UINT8, te, tirx

from chameleon_networks._graph import relax_utils
from chameleon_networks._graph.constants import array_of, evaluate
from chameleon_networks._graph.propagate_transposes import axes_of, shape_of
from chameleon_networks._graph.quantization import (
    DEQUANTIZE,
    QUANTIZE,
    QParams,
    QParamsFinder,
    is_call,
)
from chameleon_networks._graph.relax_utils import operator_name, relax, tvm
from chameleon_networks._graph.strides import axis_in

_UINT8_OFFSET = -STORAGE[INT8].low
"""The shift from int8 to uint8."""
_POOLS = {f"relax.nn.max_pool{rank}d": f"pool{rank}d" for rank in (1, 2, 3)}
"""Max-poolings, each with the function of TVM's library that computes it."""
_MOVES = frozenset(
    f"relax.{name}"
    for name in (
        *("reshape", "permute_dims", "squeeze", "expand_dims", "flatten"),
        *("strided_slice", "broadcast_to"),
    )
)
_CONCAT, _SPLIT = "relax.concat", "relax.split"
_BOUNDS = ("relax.maximum", "relax.minimum")


def is_data_movement(value: Any) -> bool:
    """Whether an expression only moves or selects numbers, as a reshape or max-pooling does."""
    if isinstance(value, relax.TupleGetItem | relax.Tuple):
        return True
    return operator_name(value) in {*_MOVES, *_POOLS, _CONCAT, _SPLIT}


def propagate_quantization(module: Any) -> Any:
    """Let data movement work on quantized numbers, and cancel quantize after dequantize."""
    # Floats change only if all readers quantize them again: else TVM fuses the cast, and attention
    # stays recognizable.
    return relax_utils.apply_mutator(module, _QuantizationMover(module))


@attrs.define(eq=False)
class _BlockFacts:
    """Facts about the variables of one block.

    Attributes:
        decoded: For each decoded variable, the step that decodes it.
        unsigned: For variables of int8, the variable with the same numbers plus 128 in uint8.
        encoded: For each variable, the steps that encode it and their results.
        clipped: For each clipped variable, the step that decoded its source, and the bounds.
        padded: For each variable that was padded with zeros, the step that decoded its source.
        real: For each encoded variable whose source was padded, that source.
    """

    decoded: dict[Any, QParams] = attrs.field(factory=dict)
    unsigned: dict[Any, Any] = attrs.field(factory=dict)
    encoded: dict[Any, list[tuple[QParams, Any]]] = attrs.field(factory=dict)
    clipped: dict[Any, tuple[QParams, Any, Any]] = attrs.field(factory=dict)
    padded: dict[Any, QParams] = attrs.field(factory=dict)
    real: dict[Any, Any] = attrs.field(factory=dict)


@relax.expr_functor.mutator
class _QuantizationMover(relax.PyExprMutator):
    """Notes for every decoded variable the step that decodes it."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._known = _BlockFacts()
        self._steps = QParamsFinder(module)
        self._encoded_again = self._encoded_in(module["main"])
        self._rewrites: dict[str, Callable[[Any, Any], Any | None]] = {
            **dict.fromkeys((*_MOVES, *_POOLS), self._moved),
            _CONCAT: self._concatenated,
            **dict.fromkeys(_BOUNDS, self._limited),
            "relax.nn.relu": self._positive,
            "relax.clip": self._clip,
            "relax.nn.pad": self._pad,
        }

    def _encoded_in(self, function: Any) -> set[Any]:
        """The variables that are only read, perhaps after moves, to be encoded as floats."""
        variables: set[Any] = set()
        other = set(relax.analysis.free_vars(function.body.body))
        for binding in reversed(relax_utils.bindings_of(function)):
            step = self._steps.of(binding.value, QUANTIZE)
            moving = operator_name(binding.value) in {*_MOVES, *_POOLS, _CONCAT}
            encoded = moving and binding.var in variables if step is None else step.floating
            for variable in relax.analysis.free_vars(binding.value):
                (variables if encoded else other).add(variable)
                variables -= other
        return variables

    def visit_dataflow_block_(self, block: Any) -> Any:
        self._known = _BlockFacts()
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: Any) -> None:
        value = self.visit_expr(binding.value)
        inner = isinstance(binding.var, relax.DataflowVar)
        result = self._rewritten(value, binding.var, inner=inner)
        if result is None:
            result = relax_utils.emit_like(self.builder_, value, binding.var)
        elif not inner:
            result = self.builder_.emit_output(result)
        self.set_var_remap(binding.var, result)

    def _rewritten(self, value: Any, variable: Any, *, inner: bool) -> Any | None:
        """The variable that replaces a value, or None if the value stays."""
        for which, computed in ((QUANTIZE, self._encoded), (DEQUANTIZE, self._decoded)):
            step = self._steps.of(value, which)
            if step is None:
                continue
            if step.floating:
                return computed(step, value) if inner else None
            # With other scales no order is kept.
            return computed(step) if (step.scale > 0).all() else None
        rewrite = self._rewrites.get(operator_name(value))
        return None if rewrite is None else rewrite(value, variable)

    # -- steps ------------------------------------------------------------------------------

    def _decoded(self, step: QParams, call: Any = None) -> Any:
        known, source = self._known, step.source
        if step.dtype == INT8 and step.whole and isinstance(source, relax.Var):
            step = attrs.evolve(
                step,
                source=self._in_unsigned(source),
                zero_point=step.zero_point + _UINT8_OFFSET,
                dtype=UINT8,
            )
        padded = known.real.get(step.source)
        if padded is not None and known.padded[padded].same(step):
            return padded
        real = self.builder_.emit(step.decode(self.builder_, step.source) if call is None else call)
        known.decoded[real] = step
        return real

    def _encoded(self, step: QParams, call: Any = None) -> Any:
        for earlier, encoded in self._known.encoded.get(step.source, ()):
            if earlier.same(step):
                return encoded
        encoded = self._encoded_anew(step, call)
        self._known.encoded.setdefault(step.source, []).append((step, encoded))
        return encoded

    def _encoded_anew(self, step: QParams, call: Any) -> Any:
        known = self._known
        if isinstance(step.source, tvm.ir.GenericConst):
            return self.builder_.emit(relax.const(step.encoded(array_of(step.source))))
        if step.dtype == INT8 and step.whole:
            shifted = attrs.evolve(step, zero_point=step.zero_point + _UINT8_OFFSET, dtype=UINT8)
            return self._signed(self._encoded(shifted))
        if step.source in known.clipped:
            before, low, high = known.clipped[step.source]
            if before.same(step):
                # Rounding never changes an order, so that the bounds may be rounded instead.
                bounds = step.encoded(np.array([low, high], np.float32))
                return self._between(before.source, *bounds)
        decoded = known.decoded.get(step.source)
        if decoded is not None and decoded.same(step) and isinstance(decoded.source, relax.Var):
            return decoded.source
        bits = self.builder_.emit(step.encode(self.builder_, step.source) if call is None else call)
        if step.source in known.padded:
            known.real[bits] = step.source
        return bits

    def _in_unsigned(self, source: Any) -> Any:
        """A variable of int8 plus 128, in uint8."""
        known = self._known.unsigned.get(source)
        if known is None:
            wide = relax.op.astype(source, "int32") + relax.const(_UINT8_OFFSET, "int32")
            known = self.builder_.emit(relax.op.astype(wide, UINT8))
            self._known.unsigned[source] = known
        return known

    def _signed(self, unsigned: Any) -> Any:
        """Numbers of int8, from the variable that holds them plus 128 in uint8."""
        wide = relax.op.astype(unsigned, "int32") - relax.const(_UINT8_OFFSET, "int32")
        signed = self.builder_.emit(relax.op.astype(wide, INT8))
        self._known.unsigned[signed] = unsigned
        return signed

    # -- moves ------------------------------------------------------------------------------

    def _moved(self, call: Any, variable: Any) -> Any | None:
        source, *others = call.args
        signed = self._known.unsigned.get(source)
        if signed is not None:
            return self._signed(
                self.builder_.emit(relax_utils.replace_arguments(call, [signed, *others]))
            )
        step = self._movable(source, variable)
        axis = None if step is None else _axis_after(call, step)
        if step is None or axis is None:
            return None
        if step.floating and operator_name(call) in _POOLS:
            moved = _max_pool_float16(self.builder_, step, call)
        else:
            moved = relax_utils.replace_arguments(call, [step.source, *others])
        if isinstance(step.source, tvm.ir.GenericConst):
            array = evaluate(self.builder_.normalize(moved), {})
            if array is None:
                return None
            constant = np.ascontiguousarray(array)
            return self._decoded(
                attrs.evolve(step, source=relax.const(constant, step.dtype), axis=axis)
            )
        if not step.whole:
            return None
        return self._decoded(attrs.evolve(step, source=self.builder_.emit(moved)))

    def _movable(self, source: Any, variable: Any) -> QParams | None:
        """The step of a decoded variable that can be moved while it is encoded, or None."""
        step = self._known.decoded.get(source)
        stays = step is not None and step.floating and variable not in self._encoded_again
        return None if stays else step

    def _concatenated(self, call: Any, variable: Any) -> Any | None:
        fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else ()
        unsigned = self._known.unsigned
        if fields and all(field in unsigned for field in fields):
            joined = relax_utils.replace_arguments(
                call, [relax.Tuple([unsigned[field] for field in fields])]
            )
            return self._signed(self.builder_.emit(joined))
        steps = [self._movable(field, variable) for field in fields]
        first = steps[0] if steps else None
        if first is None or not all(_same_qparams(first, step) for step in steps):
            return None
        parts = [step.source for step in steps if step is not None]
        concatenated = self.builder_.emit(relax_utils.replace_arguments(call, [relax.Tuple(parts)]))
        return self._decoded(attrs.evolve(first, source=concatenated))

    def _limited(self, call: Any, _: Any) -> Any | None:
        """A bound of encoded numbers, which torch writes for fewer bits than the dtype has."""
        unsigned, bound = self._known.unsigned.get(call.args[0]), call.args[1]
        if unsigned is None or not isinstance(bound, tvm.ir.GenericConst):
            return None
        shifted = relax.const((array_of(bound).astype(np.int32) + _UINT8_OFFSET).astype(UINT8))
        return self._signed(
            self.builder_.emit(relax_utils.replace_arguments(call, [unsigned, shifted]))
        )

    def _positive(self, call: Any, _: Any) -> Any | None:
        """A ReLU, computed on encoded numbers."""
        step = self._whole_numbers(call.args[0])
        if step is None or not isinstance(step.source, relax.Var):
            return None
        bounded = self._between(step.source, step.zero_point[0], None)
        return self._decoded(attrs.evolve(step, source=bounded))

    def _clip(self, call: Any, _: Any) -> Any | None:
        """A clip, whose bounds are noted for a later encoding."""
        step = self._whole_numbers(call.args[0])
        if step is None or not isinstance(step.source, relax.Var):
            return None
        clipped = self.builder_.emit(call)
        low, high = (float(bound.value) for bound in call.args[1:])
        self._known.clipped[clipped] = step, low, high
        return clipped

    def _pad(self, call: Any, _: Any) -> Any | None:
        """Padding with zeros, noted since it may become part of a convolution."""
        step = self._whole_numbers(call.args[0])
        constant = str(call.attrs.pad_mode) == "constant" and float(call.attrs.pad_value) == 0.0
        if step is None or not constant:
            return None
        padded = self.builder_.emit(call)
        self._known.padded[padded] = step
        return padded

    def _whole_numbers(self, source: Any) -> QParams | None:
        """The step of a variable that is decoded from integers with a single scale, or None."""
        step = self._known.decoded.get(source)
        return None if step is None or step.floating or not step.whole else step

    def _between(self, numbers: Any, low: Any, high: Any) -> Any:
        """Clip encoded numbers to bounds, unless the bounds are those of their dtype."""
        dtype = str(numbers.ty.dtype)
        limits = np.iinfo(dtype)
        if int(low) > limits.min:
            bound = relax.const(min(int(low), limits.max), dtype)
            numbers = self.builder_.emit(relax.op.maximum(numbers, bound))
        if high is not None and int(high) < limits.max:
            numbers = self.builder_.emit(relax.op.minimum(numbers, relax.const(int(high), dtype)))
        return numbers


def _same_qparams(first: QParams, other: QParams | None) -> bool:
    return other is not None and first.same(other) and isinstance(other.source, relax.Var)


def _axis_after(call: Any, step: QParams) -> int | None:
    """The axis of the parameters after data movement, or None if they cannot follow it."""
    if step.whole:
        return 0
    before = shape_of(step.source)
    if is_call(call, "relax.permute_dims"):
        return axes_of(call).index(step.axis)
    if is_call(call, "relax.reshape"):
        after = shape_of(call)
        axis = axis_in(before, step.axis, after)
        return axis if axis is not None and after[axis] == len(step.scale) else None
    return None


def _max_pool_float16(builder: Any, step: QParams, call: Any) -> Any:
    """Max-pool encoded floating-point numbers as integers of the same order, in one function."""
    known = call.attrs
    [infinity] = STORAGE[step.dtype].stored(np.full(1, np.inf, np.float32)).view(np.int16)
    pool = _POOLS[operator_name(call)]
    sizes = (known.pool_size, known.strides, known.dilation, known.padding)
    kernel, stride, dilation, padding = ([int(number) for number in size] for size in sizes)

    def pooled(source: te.Tensor) -> te.Tensor:
        best = getattr(tvm.topi.nn, pool)(
            _order_preserving_bits(source, "int16", int(infinity)),
            kernel=kernel,
            stride=stride,
            dilation=dilation,
            padding=padding,
            pool_type="max",
            ceil_mode=bool(known.ceil_mode),
            layout=str(known.layout),
        )
        return _order_preserving_bits(best, str(source.dtype))

    return builder.call_te(pooled, step.source, primfunc_name_hint="max_" + pool)


def _order_preserving_bits(source: te.Tensor, dtype: str, infinity: int = 0) -> te.Tensor:
    """Convert 16-bit floats to integers of the same order, or back; NaN is the largest."""
    # Flipping all bits but the sign of negative numbers is its own inverse.

    def key(*indices: Any) -> Any:
        bits = tirx.reinterpret("int16", tirx.Cast(str(source.dtype), source(*indices)))
        if infinity:
            size = bits & tirx.IntImm("int16", 0x7FFF)
            bits = tirx.Select(size > tirx.IntImm("int16", infinity), size, bits)
        sign = bits >> tirx.IntImm("int16", 15)
        return tirx.reinterpret(dtype, bits ^ (sign & tirx.IntImm("int16", 0x7FFF)))

    return te.compute(source.shape, key, name="keys")

"""Moves dequantize past data movement, like Q/DQ propagation in other compilers.

It also replaces int8 data by uint8, which kernels read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from chameleon_tvm.api import INT8, STORAGE, UINT8, te, tirx

from chameleon_networks._graph.constants import array_of, evaluate
from chameleon_networks._graph.quantization import (
    DEQUANTIZE,
    QUANTIZE,
    QParams,
    QParamsFinder,
    is_call,
)
from chameleon_networks._graph.relax_utils import (
    axes_of,
    bindings_of,
    emit_like,
    mutate,
    operator_name,
    relax,
    shape_of,
    tvm,
    with_args,
)
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
    return mutate(module, _QuantizationMover(module))


@attrs.define(eq=False)
class _BlockFacts:
    """Facts about the variables of one block.

    Attributes:
        dequantized: The parameters of each dequantized variable.
        unsigned: For variables of int8, the variable of the same numbers plus 128 in uint8.
        quantized: For each variable, the parameters that quantize it, and the results.
        clipped: For each clipped variable, the parameters of its source, and the bounds.
        padded: For each variable that was padded with zeros, the parameters of its source.
        padded_source: For each quantized variable whose source was padded, that source.
    """

    dequantized: dict[Any, QParams] = attrs.field(factory=dict)
    unsigned: dict[Any, Any] = attrs.field(factory=dict)
    quantized: dict[Any, list[tuple[QParams, Any]]] = attrs.field(factory=dict)
    clipped: dict[Any, tuple[QParams, Any, Any]] = attrs.field(factory=dict)
    padded: dict[Any, QParams] = attrs.field(factory=dict)
    padded_source: dict[Any, Any] = attrs.field(factory=dict)


@relax.expr_functor.mutator
class _QuantizationMover(relax.PyExprMutator):
    """Notes the quantization parameters of each dequantized variable."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._facts = _BlockFacts()
        self._finder = QParamsFinder(module)
        self._requantized = self._requantized_in(module["main"])
        self._rewrites: dict[str, Callable[[Any, Any], Any | None]] = {
            **dict.fromkeys((*_MOVES, *_POOLS), self._move),
            _CONCAT: self._concatenate,
            **dict.fromkeys(_BOUNDS, self._bound),
            "relax.nn.relu": self._relu,
            "relax.clip": self._clip,
            "relax.nn.pad": self._pad,
        }

    def _requantized_in(self, function: Any) -> set[Any]:
        """The variables that are read only to be quantized to 16-bit floats, after moves."""
        variables: set[Any] = set()
        others = set(relax.analysis.free_vars(function.body.body))
        for binding in reversed(bindings_of(function)):
            qparams = self._finder.of(binding.value, QUANTIZE)
            moving = operator_name(binding.value) in {*_MOVES, *_POOLS, _CONCAT}
            quantized = moving and binding.var in variables if qparams is None else qparams.is_float
            for variable in relax.analysis.free_vars(binding.value):
                (variables if quantized else others).add(variable)
                variables -= others
        return variables

    def visit_dataflow_block_(self, block: Any) -> Any:
        self._facts = _BlockFacts()
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: Any) -> None:
        value = self.visit_expr(binding.value)
        inner = isinstance(binding.var, relax.DataflowVar)
        result = self._rewrite(value, binding.var, inner=inner)
        if result is None:
            result = emit_like(self.builder_, value, binding.var)
        elif not inner:
            result = self.builder_.emit_output(result)
        self.set_var_remap(binding.var, result)

    def _rewrite(self, value: Any, variable: Any, *, inner: bool) -> Any | None:
        """The variable that replaces a value, or None to keep the value."""
        for operator, computed in ((QUANTIZE, self._quantize), (DEQUANTIZE, self._dequantize)):
            qparams = self._finder.of(value, operator)
            if qparams is None:
                continue
            if qparams.is_float:
                return computed(qparams, value) if inner else None
            # A scale below zero reverses the order of numbers.
            return computed(qparams) if (qparams.scale > 0).all() else None
        rewrite = self._rewrites.get(operator_name(value))
        return None if rewrite is None else rewrite(value, variable)

    # -- quantize and dequantize ------------------------------------------

    def _dequantize(self, qparams: QParams, call: Any = None) -> Any:
        facts, source = self._facts, qparams.source
        if qparams.dtype == INT8 and qparams.per_tensor and isinstance(source, relax.Var):
            qparams = attrs.evolve(
                qparams,
                source=self._to_unsigned(source),
                zero_point=qparams.zero_point + _UINT8_OFFSET,
                dtype=UINT8,
            )
        padded = facts.padded_source.get(qparams.source)
        if padded is not None and facts.padded[padded].equals(qparams):
            return padded
        result = self.builder_.emit(
            qparams.dequantize(self.builder_, qparams.source) if call is None else call
        )
        facts.dequantized[result] = qparams
        return result

    def _quantize(self, qparams: QParams, call: Any = None) -> Any:
        for earlier, quantized in self._facts.quantized.get(qparams.source, ()):
            if earlier.equals(qparams):
                return quantized
        quantized = self._quantize_new(qparams, call)
        self._facts.quantized.setdefault(qparams.source, []).append((qparams, quantized))
        return quantized

    def _quantize_new(self, qparams: QParams, call: Any) -> Any:
        facts = self._facts
        if isinstance(qparams.source, tvm.ir.GenericConst):
            return self.builder_.emit(relax.const(qparams.quantize_array(array_of(qparams.source))))
        if qparams.dtype == INT8 and qparams.per_tensor:
            shifted = attrs.evolve(
                qparams, zero_point=qparams.zero_point + _UINT8_OFFSET, dtype=UINT8
            )
            return self._to_signed(self._quantize(shifted))
        if qparams.source in facts.clipped:
            before, low, high = facts.clipped[qparams.source]
            if before.equals(qparams):
                # Rounding is monotonic, so that the bounds may be rounded instead.
                bounds = qparams.quantize_array(np.array([low, high], np.float32))
                return self._clip_numbers(before.source, *bounds)
        dequantized = facts.dequantized.get(qparams.source)
        if (
            dequantized is not None
            and dequantized.equals(qparams)
            and isinstance(dequantized.source, relax.Var)
        ):
            return dequantized.source
        bits = self.builder_.emit(
            qparams.quantize(self.builder_, qparams.source) if call is None else call
        )
        if qparams.source in facts.padded:
            facts.padded_source[bits] = qparams.source
        return bits

    def _to_unsigned(self, source: Any) -> Any:
        """A variable of int8, plus 128 in uint8."""
        shifted = self._facts.unsigned.get(source)
        if shifted is None:
            wide = relax.op.astype(source, "int32") + relax.const(_UINT8_OFFSET, "int32")
            shifted = self.builder_.emit(relax.op.astype(wide, UINT8))
            self._facts.unsigned[source] = shifted
        return shifted

    def _to_signed(self, unsigned: Any) -> Any:
        """The int8 numbers of a variable that holds them plus 128 in uint8."""
        wide = relax.op.astype(unsigned, "int32") - relax.const(_UINT8_OFFSET, "int32")
        signed = self.builder_.emit(relax.op.astype(wide, INT8))
        self._facts.unsigned[signed] = unsigned
        return signed

    # -- data movement ------------------------------------------

    def _move(self, call: Any, variable: Any) -> Any | None:
        source, *others = call.args
        unsigned = self._facts.unsigned.get(source)
        if unsigned is not None:
            return self._to_signed(self.builder_.emit(with_args(call, [unsigned, *others])))
        qparams = self._movable_qparams(source, variable)
        axis = None if qparams is None else _axis_after(call, qparams)
        if qparams is None or axis is None:
            return None
        if qparams.is_float and operator_name(call) in _POOLS:
            moved = _max_pool_half(self.builder_, qparams, call)
        else:
            moved = with_args(call, [qparams.source, *others])
        if isinstance(qparams.source, tvm.ir.GenericConst):
            array = evaluate(self.builder_.normalize(moved), {})
            if array is None:
                return None
            constant = np.ascontiguousarray(array)
            return self._dequantize(
                attrs.evolve(qparams, source=relax.const(constant, qparams.dtype), axis=axis)
            )
        if not qparams.per_tensor:
            return None
        return self._dequantize(attrs.evolve(qparams, source=self.builder_.emit(moved)))

    def _movable_qparams(self, source: Any, variable: Any) -> QParams | None:
        """The parameters of a variable whose dequantization may move behind its reader, or None."""
        qparams = self._facts.dequantized.get(source)
        stays = qparams is not None and qparams.is_float and variable not in self._requantized
        return None if stays else qparams

    def _concatenate(self, call: Any, variable: Any) -> Any | None:
        fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else ()
        unsigned = self._facts.unsigned
        if fields and all(field in unsigned for field in fields):
            joined = with_args(call, [relax.Tuple([unsigned[field] for field in fields])])
            return self._to_signed(self.builder_.emit(joined))
        all_qparams = [self._movable_qparams(field, variable) for field in fields]
        first = all_qparams[0] if all_qparams else None
        if first is None or not all(_same_qparams(first, qparams) for qparams in all_qparams):
            return None
        parts = [qparams.source for qparams in all_qparams if qparams is not None]
        concatenated = self.builder_.emit(with_args(call, [relax.Tuple(parts)]))
        return self._dequantize(attrs.evolve(first, source=concatenated))

    def _bound(self, call: Any, _: Any) -> Any | None:
        """A bound of quantized numbers, as torch writes it for fewer bits than the dtype has."""
        unsigned, bound = self._facts.unsigned.get(call.args[0]), call.args[1]
        if unsigned is None or not isinstance(bound, tvm.ir.GenericConst):
            return None
        shifted = relax.const((array_of(bound).astype(np.int32) + _UINT8_OFFSET).astype(UINT8))
        return self._to_signed(self.builder_.emit(with_args(call, [unsigned, shifted])))

    def _relu(self, call: Any, _: Any) -> Any | None:
        """A ReLU of quantized numbers."""
        qparams = self._integer_qparams(call.args[0])
        if qparams is None or not isinstance(qparams.source, relax.Var):
            return None
        bounded = self._clip_numbers(qparams.source, qparams.zero_point[0], None)
        return self._dequantize(attrs.evolve(qparams, source=bounded))

    def _clip(self, call: Any, _: Any) -> Any | None:
        """A clip, whose bounds a later quantization may apply instead."""
        qparams = self._integer_qparams(call.args[0])
        if qparams is None or not isinstance(qparams.source, relax.Var):
            return None
        clipped = self.builder_.emit(call)
        low, high = (float(bound.value) for bound in call.args[1:])
        self._facts.clipped[clipped] = qparams, low, high
        return clipped

    def _pad(self, call: Any, _: Any) -> Any | None:
        """A pad with zeros, noted because a convolution may absorb it."""
        qparams = self._integer_qparams(call.args[0])
        constant = str(call.attrs.pad_mode) == "constant" and float(call.attrs.pad_value) == 0.0
        if qparams is None or not constant:
            return None
        padded = self.builder_.emit(call)
        self._facts.padded[padded] = qparams
        return padded

    def _integer_qparams(self, source: Any) -> QParams | None:
        """The parameters of a variable that is dequantized per tensor from integers, or None."""
        qparams = self._facts.dequantized.get(source)
        return None if qparams is None or qparams.is_float or not qparams.per_tensor else qparams

    def _clip_numbers(self, numbers: Any, low: Any, high: Any) -> Any:
        """Clip quantized numbers to bounds, unless these are the limits of the dtype."""
        dtype = str(numbers.ty.dtype)
        limits = np.iinfo(dtype)
        if int(low) > limits.min:
            bound = relax.const(min(int(low), limits.max), dtype)
            numbers = self.builder_.emit(relax.op.maximum(numbers, bound))
        if high is not None and int(high) < limits.max:
            numbers = self.builder_.emit(relax.op.minimum(numbers, relax.const(int(high), dtype)))
        return numbers


def _same_qparams(first: QParams, others: QParams | None) -> bool:
    return others is not None and first.equals(others) and isinstance(others.source, relax.Var)


def _axis_after(call: Any, qparams: QParams) -> int | None:
    """The axis of the parameters after data movement, or None if they cannot follow it."""
    if qparams.per_tensor:
        return 0
    before = shape_of(qparams.source)
    if is_call(call, "relax.permute_dims"):
        return axes_of(call).index(qparams.axis)
    if is_call(call, "relax.reshape"):
        after = shape_of(call)
        axis = axis_in(before, qparams.axis, after)
        return axis if axis is not None and after[axis] == len(qparams.scale) else None
    return None


def _max_pool_half(builder: Any, qparams: QParams, call: Any) -> Any:
    """Max-pool stored 16-bit floats as integers of the same order, in one function."""
    attributes = call.attrs
    [infinity] = STORAGE[qparams.dtype].stored(np.full(1, np.inf, np.float32)).view(np.int16)
    pool = _POOLS[operator_name(call)]
    sizes = (attributes.pool_size, attributes.strides, attributes.dilation, attributes.padding)
    kernel, stride, dilation, padding = ([int(number) for number in size] for size in sizes)

    def pooled(source: te.Tensor) -> te.Tensor:
        best = getattr(tvm.topi.nn, pool)(
            _order_preserving_bits(source, "int16", int(infinity)),
            kernel=kernel,
            stride=stride,
            dilation=dilation,
            padding=padding,
            pool_type="max",
            ceil_mode=bool(attributes.ceil_mode),
            layout=str(attributes.layout),
        )
        return _order_preserving_bits(best, str(source.dtype))

    return builder.call_te(pooled, qparams.source, primfunc_name_hint="max_" + pool)


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

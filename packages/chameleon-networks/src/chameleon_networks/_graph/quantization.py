"""Quantize and dequantize operators of a graph.

Those of bfloat16 and float16 are functions of Chameleon, because TVM's bfloat16 rounds differently
on each target; the numbers are stored as 16-bit integers.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import FLOAT32
from chameleon_tvm.api import FLOATING_IN, STORAGE, emit
from numpy.typing import NDArray

from chameleon_networks._graph.constants import array_of
from chameleon_networks._graph.relax_utils import (
    bindings_of,
    map_elements,
    operator_name,
    relax,
    tvm,
)

QUANTIZE, DEQUANTIZE = "relax.quantize", "relax.dequantize"
_FUNCTIONS = {QUANTIZE: ("round", emit.rounding), DEQUANTIZE: ("widen", emit.widening)}
_OPERATION = "chameleon.step"
"""An attribute of functions on 16-bit floats: ``relax.quantize`` or ``relax.dequantize``."""


@attrs.frozen(kw_only=True, eq=False)
class QParams:
    """The constant quantization parameters of a quantize or dequantize operator.

    Attributes:
        source: The expression that is encoded or decoded.
        dtype: The dtype of the encoded numbers.
        scale: A float32 array of shape (1,), or one number for each index of the axis ``axis``.
        zero_point: An int64 array of the shape of ``scale``.
        axis: The axis of the parameters, counted from the front. It is ignored if there is a single
            scale.
    """

    # An integer q represents ``(q - zero_point) * scale``, a floating-point number itself.

    source: Any
    dtype: str
    scale: NDArray[np.float32] = attrs.field(factory=lambda: np.ones(1, np.float32))
    zero_point: NDArray[np.int64] = attrs.field(factory=lambda: np.zeros(1, np.int64))
    axis: int = 0

    @property
    def is_float(self) -> bool:
        """Whether the storage dtype is a floating-point dtype."""
        return self.dtype in STORAGE and not STORAGE[self.dtype].whole

    @property
    def per_tensor(self) -> bool:
        """Whether the tensor has a single scale and zero point."""
        return len(self.scale) == 1

    def equals(self, other: QParams) -> bool:
        """Whether both are per tensor, with equal dtype, scale and zero point."""
        return (
            self.per_tensor
            and other.per_tensor
            and self.dtype == other.dtype
            and bool(self.scale[0] == other.scale[0])
            and bool(self.zero_point[0] == other.zero_point[0])
        )

    def quantize_array(self, values: NDArray[Any]) -> NDArray[Any]:
        """Quantize a float32 array to integers, with ties to even."""
        limits = np.iinfo(self.dtype)
        scale, zero_point = self._broadcast_parameters(values)
        numbers = np.rint(np.asarray(values, np.float32) / scale) + zero_point
        return np.asarray(np.clip(numbers, limits.min, limits.max), self.dtype)

    def dequantize_array(self, numbers: NDArray[Any]) -> NDArray[np.float32]:
        """Dequantize an array of integers to float32."""
        return (
            self.subtract_zero_point(numbers).astype(np.float32)
            * self._broadcast_parameters(numbers)[0]
        )

    def subtract_zero_point(self, numbers: NDArray[Any]) -> NDArray[np.int64]:
        """Subtract the zero point from an array of integers."""
        return numbers.astype(np.int64) - self._broadcast_parameters(numbers)[1]

    def _broadcast_parameters(
        self, numbers: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scale and zero point in shapes that broadcast to an array."""
        shape = [1] * numbers.ndim
        if not self.per_tensor:
            shape[self.axis] = len(self.scale)
        return self.scale.reshape(shape), self.zero_point.reshape(shape)

    def dequantize(self, builder: Any, numbers: Any) -> Any:
        """The Relax expression that dequantizes a tensor; ``builder`` must be inside a block."""
        if self.is_float:
            return self._emit_conversion(builder, numbers, DEQUANTIZE)
        return relax.op.dequantize(numbers, *self._constants(), axis=self._axis)

    def quantize(self, builder: Any, numbers: Any) -> Any:
        """The Relax expression that quantizes a float32 variable."""
        if self.is_float:
            return self._emit_conversion(builder, numbers, QUANTIZE)
        return relax.op.quantize(numbers, *self._constants(), axis=self._axis, out_dtype=self.dtype)

    def _emit_conversion(self, builder: Any, tensor: Any, operator: str) -> Any:
        name, convert = _FUNCTIONS[operator]
        function = partial(convert, STORAGE[self.dtype])
        attributes = {_OPERATION: operator}
        hint = f"{name}_{self.dtype}"
        return map_elements(builder, function, tensor, hint, primfunc_attrs=attributes)

    @property
    def _axis(self) -> int:
        # Per-tensor parameters have no axis, and data movement may drop axes.
        return -1 if self.per_tensor else self.axis

    def _constants(self) -> tuple[Any, Any]:
        shape = () if self.per_tensor else (-1,)
        # Relax accepts zero points of 8, 16 and 32 bits.
        return (
            relax.const(self.scale.reshape(shape), FLOAT32),
            relax.const(self.zero_point.astype(np.int32).reshape(shape), "int32"),
        )


class QParamsFinder:
    """Finds the quantization parameters of a module's operators, 16-bit floats included."""

    def __init__(self, module: Any) -> None:
        known = ((v, (getattr(f, "attrs", None) or {})) for v, f in module.functions_items())
        self._functions = {
            variable.name_hint: str(attributes[_OPERATION])
            for variable, attributes in known
            if _OPERATION in attributes
        }

    def of(self, value: Any, operator: str) -> QParams | None:
        """The parameters with which an expression quantizes or dequantizes, or None."""
        if not self._functions or not is_call(value, "relax.call_tir"):
            return qparams_of(value, operator)
        if self._functions.get(value.args[0].name_hint) != operator:
            return None
        [source] = value.args[1].fields
        encoded = value.ty_args[0] if operator == QUANTIZE else source.ty
        return QParams(source=source, dtype=FLOATING_IN[str(encoded.dtype)].name)


def qparams_of(value: Any, operator: str) -> QParams | None:
    """The constant parameters of ``relax.quantize`` or ``relax.dequantize`` in float32, or None."""
    if not is_call(value, operator):
        return None
    source, *parameters = value.args
    if not all(isinstance(parameter, tvm.ir.GenericConst) for parameter in parameters):
        return None
    scale, zero_point = (array_of(parameter).reshape(-1) for parameter in parameters)
    dtype = str((value if operator == QUANTIZE else source).ty.dtype)
    float_dtype = str((source if operator == QUANTIZE else value).ty.dtype)
    if not np.issubdtype(zero_point.dtype, np.integer) or float_dtype != FLOAT32:
        return None
    length = max(len(scale), len(zero_point))
    return QParams(
        source=source,
        scale=np.broadcast_to(scale, (length,)).astype(np.float32),
        zero_point=np.broadcast_to(zero_point, (length,)).astype(np.int64),
        axis=int(value.attrs.axis) % max(len(source.ty.shape), 1),
        dtype=dtype,
    )


def dequantized_constant(value: Any) -> NDArray[np.float32] | None:
    """The float32 values of a quantized constant that an expression dequantizes, or None."""
    step = qparams_of(value, DEQUANTIZE)
    if step is None or not isinstance(step.source, tvm.ir.GenericConst):
        return None
    return step.dequantize_array(array_of(step.source))


def is_call(value: Any, name: str) -> bool:
    """Whether an expression is a call of the named operator."""
    return operator_name(value) == name


def is_quantized(module: Any) -> bool:
    """Whether a network has integer quantize or dequantize operators."""
    return any(
        operator_name(b.value) in {QUANTIZE, DEQUANTIZE} for b in bindings_of(module["main"])
    )


def quantizes_activations(module: Any) -> bool:
    """Whether a network quantizes activations, not only its weights."""
    return any(
        is_call(binding.value, QUANTIZE) and isinstance(binding.value.args[0], relax.Var)
        for binding in bindings_of(module["main"])
    )

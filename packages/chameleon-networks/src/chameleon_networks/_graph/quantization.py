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
from chameleon_tvm.api import FLOATING_IN, STORAGE, rounding, widening
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
_FUNCTIONS = {QUANTIZE: ("round", rounding), DEQUANTIZE: ("widen", widening)}
_OPERATION = "chameleon.step"
"""An attribute of functions that are quantization steps: which step it is."""


@attrs.frozen(kw_only=True, eq=False)
class QParams:
    """A quantization step whose parameters are constants.

    Attributes:
        source: The expression that is encoded or decoded.
        dtype: The dtype of the encoded numbers.
        scale: A float32 array of shape (1,), or one number for each index of the axis ``axis``.
        zero_point: An int64 array of the shape of ``scale``.
        axis: The axis of the parameters, counted from the front. It is ignored if there is a single
            scale.
    """

    source: Any
    dtype: str
    scale: NDArray[np.float32] = attrs.field(factory=lambda: np.ones(1, np.float32))
    zero_point: NDArray[np.int64] = attrs.field(factory=lambda: np.zeros(1, np.int64))
    axis: int = 0

    @property
    def floating(self) -> bool:
        """Whether the encoded numbers have a floating-point dtype."""
        return self.dtype in STORAGE and not STORAGE[self.dtype].whole

    @property
    def whole(self) -> bool:
        """Whether the whole tensor has a single scale and a single zero point."""
        return len(self.scale) == 1

    def same(self, other: QParams) -> bool:
        """Whether another step has the same dtype, scale and zero point."""
        return (
            self.whole
            and other.whole
            and self.dtype == other.dtype
            and bool(self.scale[0] == other.scale[0])
            and bool(self.zero_point[0] == other.zero_point[0])
        )

    def encoded(self, values: NDArray[Any]) -> NDArray[Any]:
        """Encode floating-point numbers as integers with the step's scale and zero point."""
        limits = np.iinfo(self.dtype)
        scale, zero_point = self._along(values)
        numbers = np.rint(np.asarray(values, np.float32) / scale) + zero_point
        return np.asarray(np.clip(numbers, limits.min, limits.max), self.dtype)

    def real(self, numbers: NDArray[Any]) -> NDArray[np.float32]:
        """Decode quantized integers to float32 numbers, with this step's scale and zero point."""
        return self.centred(numbers).astype(np.float32) * self._along(numbers)[0]

    def centred(self, numbers: NDArray[Any]) -> NDArray[np.int64]:
        """Subtract this step's zero point from quantized integers."""
        return numbers.astype(np.int64) - self._along(numbers)[1]

    def _along(self, numbers: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scale and zero point, reshaped so that they broadcast to an array."""
        shape = [1] * numbers.ndim
        if not self.whole:
            shape[self.axis] = len(self.scale)
        return self.scale.reshape(shape), self.zero_point.reshape(shape)

    def decode(self, builder: Any, numbers: Any) -> Any:
        """Make the Relax call that decodes (dequantizes) a tensor with this step's scale."""
        if self.floating:
            return self._converted(builder, numbers, DEQUANTIZE)
        return relax.op.dequantize(numbers, *self._constants(), axis=self._axis)

    def encode(self, builder: Any, numbers: Any) -> Any:
        """Make the Relax call that encodes (quantizes) a tensor with this step's scale."""
        if self.floating:
            return self._converted(builder, numbers, QUANTIZE)
        return relax.op.quantize(numbers, *self._constants(), axis=self._axis, out_dtype=self.dtype)

    def _converted(self, builder: Any, tensor: Any, which: str) -> Any:
        name, convert = _FUNCTIONS[which]
        function = partial(convert, STORAGE[self.dtype])
        marks = {_OPERATION: which}
        hint = f"{name}_{self.dtype}"
        return map_elements(builder, function, tensor, hint, primfunc_attrs=marks)

    @property
    def _axis(self) -> int:
        # Parameters of the whole tensor have none, and a move may leave it fewer axes.
        return -1 if self.whole else self.axis

    def _constants(self) -> tuple[Any, Any]:
        shape = () if self.whole else (-1,)
        # Relax takes zero points of 8, 16 and 32 bits; those of 32 hold all others.
        return (
            relax.const(self.scale.reshape(shape), FLOAT32),
            relax.const(self.zero_point.astype(np.int32).reshape(shape), "int32"),
        )


class QParamsFinder:
    """Recognizes the quantization steps of a module."""

    def __init__(self, module: Any) -> None:
        known = ((v, (getattr(f, "attrs", None) or {})) for v, f in module.functions_items())
        self._functions = {
            variable.name_hint: str(attributes[_OPERATION])
            for variable, attributes in known
            if _OPERATION in attributes
        }

    def of(self, value: Any, which: str) -> QParams | None:
        """The quantization step that an expression computes, or None."""
        if not self._functions or not is_call(value, "relax.call_tir"):
            return qparams_of(value, which)
        if self._functions.get(value.args[0].name_hint) != which:
            return None
        [source] = value.args[1].fields
        encoded = value.ty_args[0] if which == QUANTIZE else source.ty
        return QParams(source=source, dtype=FLOATING_IN[str(encoded.dtype)].name)


def qparams_of(value: Any, which: str) -> QParams | None:
    """The quantization step that an expression computes by ``relax.quantize`` or ``dequantize``."""
    if not is_call(value, which):
        return None
    source, *parameters = value.args
    if not all(isinstance(parameter, tvm.ir.GenericConst) for parameter in parameters):
        return None
    scale, zero_point = (array_of(parameter).reshape(-1) for parameter in parameters)
    dtype = str((value if which == QUANTIZE else source).ty.dtype)
    real = str((source if which == QUANTIZE else value).ty.dtype)
    if not np.issubdtype(zero_point.dtype, np.integer) or real != FLOAT32:
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
    """The float32 values of a quantized constant that an expression decodes, or None for others."""
    step = qparams_of(value, DEQUANTIZE)
    if step is None or not isinstance(step.source, tvm.ir.GenericConst):
        return None
    return step.real(array_of(step.source))


def is_call(value: Any, name: str) -> bool:
    """Whether an expression is a call of the named operator."""
    return operator_name(value) == name


def is_quantized(module: Any) -> bool:
    """Whether a network contains quantization steps of integers."""
    return any(
        operator_name(b.value) in {QUANTIZE, DEQUANTIZE} for b in bindings_of(module["main"])
    )


def quantizes_activations(module: Any) -> bool:
    """Whether a network quantizes computed values, not only its weights."""
    return any(
        is_call(binding.value, QUANTIZE) and isinstance(binding.value.args[0], relax.Var)
        for binding in bindings_of(module["main"])
    )

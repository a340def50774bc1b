"""Calls of ``quantize`` and ``dequantize`` in a graph, and what their parameters are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_networks.graph.constants import array_of
from chameleon_networks.graph.relaxed import relax, tvm

QUANTIZE, DEQUANTIZE = "relax.quantize", "relax.dequantize"


@attrs.frozen(kw_only=True, eq=False)
class Step:
    """A ``quantize`` or ``dequantize`` whose parameters are constants.

    A number ``q`` stands for ``(q - zero_point) * scale``.

    Attributes:
        source: what is quantized or dequantized.
        scale: float32 of shape (1,), or one for each index of the axis.
        zero_point: int64 of the same shape.
        axis: of parameters that are not those of the whole tensor, counted from the front.
        dtype: of the quantized numbers.
    """

    source: Any
    scale: NDArray[np.float32]
    zero_point: NDArray[np.int64]
    axis: int
    dtype: str

    @property
    def whole(self) -> bool:
        """Whether one scale and one zero point are those of the whole tensor."""
        return len(self.scale) == 1

    def same(self, other: Step) -> bool:
        """Whether numbers of another step mean the same; only of whole tensors."""
        return (
            self.whole
            and other.whole
            and self.dtype == other.dtype
            and bool(self.scale[0] == other.scale[0])
            and bool(self.zero_point[0] == other.zero_point[0])
        )

    def quantized(self, values: NDArray[Any]) -> NDArray[Any]:
        """What numbers become; halves are rounded to the even neighbour."""
        limits = np.iinfo(self.dtype)
        scale, zero_point = self._along(values)
        numbers = np.rint(np.asarray(values, np.float32) / scale) + zero_point
        found: NDArray[Any] = np.clip(numbers, limits.min, limits.max).astype(self.dtype)
        return found

    def real(self, numbers: NDArray[Any]) -> NDArray[np.float32]:
        """What quantized numbers stand for."""
        scale, zero_point = self._along(numbers)
        return (numbers.astype(np.int64) - zero_point).astype(np.float32) * scale

    def _along(self, numbers: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scale and zero point in a shape that is broadcast to an array."""
        shape = [1] * numbers.ndim
        if not self.whole:
            shape[self.axis] = len(self.scale)
        return self.scale.reshape(shape), self.zero_point.reshape(shape)

    def dequantize(self, numbers: Any) -> Any:
        """The call that gives real numbers for quantized ones of these parameters."""
        return relax.op.dequantize(numbers, *self._constants(), axis=self._axis)

    def quantize(self, numbers: Any) -> Any:
        """The call that gives quantized numbers of these parameters."""
        return relax.op.quantize(numbers, *self._constants(), axis=self._axis, out_dtype=self.dtype)

    @property
    def _axis(self) -> int:
        # Parameters of the whole tensor have none, and a move may leave it fewer axes.
        return -1 if self.whole else self.axis

    def _constants(self) -> tuple[Any, Any]:
        shape = () if self.whole else (-1,)
        # Relax takes zero points of 8, 16 and 32 bits; those of 32 hold all others.
        return (
            relax.const(self.scale.reshape(shape), "float32"),
            relax.const(self.zero_point.astype(np.int32).reshape(shape), "int32"),
        )


def step_of(value: Any, name: str) -> Step | None:
    """The step that an expression is; None for another one, or where parameters are computed.

    Args:
        value: any expression.
        name: ``QUANTIZE`` or ``DEQUANTIZE``.
    """
    if not is_call(value, name):
        return None
    source, *parameters = value.args
    if not all(isinstance(one, tvm.ir.GenericConst) for one in parameters):
        return None
    scale, zero_point = (array_of(one).reshape(-1) for one in parameters)
    dtype = str((value if name == QUANTIZE else source).ty.dtype)
    real = str((source if name == QUANTIZE else value).ty.dtype)
    if not np.issubdtype(zero_point.dtype, np.integer) or real != "float32":
        return None
    length = max(len(scale), len(zero_point))
    return Step(
        source=source,
        scale=np.broadcast_to(scale, (length,)).astype(np.float32),
        zero_point=np.broadcast_to(zero_point, (length,)).astype(np.int64),
        axis=int(value.attrs.axis) % max(len(source.ty.shape), 1),
        dtype=dtype,
    )


def is_call(value: Any, name: str) -> bool:
    """Whether an expression is a call of an operator."""
    return (
        isinstance(value, relax.Call)
        and isinstance(value.op, tvm.ir.Op)
        and str(value.op.name) == name
    )


def is_quantized(module: Any) -> bool:
    """Whether a network comes with steps of quantization in it."""
    return any(is_call(value, name) for value in _values(module) for name in (QUANTIZE, DEQUANTIZE))


def is_rounded(module: Any) -> bool:
    """Whether a network rounds what it computes, not its weights alone."""
    return any(
        is_call(value, QUANTIZE) and isinstance(value.args[0], relax.Var)
        for value in _values(module)
    )


def _values(module: Any) -> Iterator[Any]:
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            yield binding.value

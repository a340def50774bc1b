"""Operators on tensors of bfloat16 and float16 on CPUs: everything between them is in float32.

Buffers of bfloat16 are 16-bit integers, since TVM computes with its own bfloat16 in float32 and
rounds in between. Sums and epilogue are float32 here, and the output is rounded once, or not at all
where it is float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from chameleon_core.stages import Arrays
from numpy.typing import NDArray

from chameleon_tvm.instructions.halves import half_of
from chameleon_tvm.late_tvm import te
from chameleon_tvm.operators.activations import activate
from chameleon_tvm.operators.base import seeded_array, tolerance_of
from chameleon_tvm.operators.element_types import BFLOAT16, FLOAT32
from chameleon_tvm.operators.epilogue import Epilogue
from chameleon_tvm.operators.spec import FusedSpec

BITS = "uint16"
"""What buffers of bfloat16 hold: the upper half of a float32."""


def real(array: NDArray[Any]) -> NDArray[np.float32]:
    """Numbers as float32, exactly: those of bfloat16, their bits, and those of float16.

    Args:
        array: of bfloat16, or its bits in uint16, of float16 or float32; of any shape.
    """
    if array.dtype.name == BFLOAT16:
        array = array.view(np.uint16)
    if array.dtype == np.uint16:
        return np.left_shift(array.astype(np.uint32), 16).view(np.float32)
    return array.astype(np.float32, copy=False)


def held(dtype: str) -> str:
    """Element type of the buffers of tensors of a type on CPUs."""
    return BITS if dtype == BFLOAT16 else dtype


def stored(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Numbers as buffers of a type hold them, a network's own in float32 rounded.

    Args:
        array: of the type, of what buffers hold, or of float32.
        dtype: of the tensor.
    """
    if array.dtype == np.float32 and dtype != FLOAT32:
        half = half_of(dtype)
        return array if half is None else half.rounded(array)
    return array.view(np.uint16) if array.dtype.name == BFLOAT16 else array


def widening(dtype: str, element: Any) -> Any:
    """An element of a tensor of a type as float32, in an expression."""
    half = half_of(dtype)
    return element if half is None else half.widening(element, 1)


def rounding(dtype: str, value: Any) -> Any:
    """A number of float32 as an element of a tensor of a type, in an expression."""
    half = half_of(dtype)
    return value if half is None else half.rounding(value, 1)


class HalfEpilogue(Epilogue):
    """Operands and epilogue of an operator on bfloat16 or float16 tensors.

    Args:
        spec: the operator.
    """

    operand_type: ClassVar[str] = FLOAT32

    def __init__(self, spec: FusedSpec) -> None:
        super().__init__(spec)
        self.data_type = self.weights_type = self.centred_type = held(spec.dtype)

    @property
    def tolerance(self) -> float:
        return tolerance_of(self.spec.output_dtype)

    def operands(self, data: tuple[int, ...], weights: tuple[int, ...]) -> Arrays:
        dtype = self.spec.dtype
        return [seeded_array(data, dtype, 0), seeded_array(weights, dtype, 1)]

    def stored(self, place: int, array: NDArray[Any]) -> NDArray[Any]:
        added = self.spec.residual and place == 2 + self.spec.bias
        return stored(array, self.spec.output_dtype if added else self.spec.dtype)

    def logical(self, outputs: Arrays) -> Arrays:
        return [real(one) for one in outputs]

    def operand(self, element: Any) -> Any:
        return widening(self.spec.dtype, element)

    def apply(
        self,
        sums: te.Tensor,
        channel: Callable[[tuple[Any, ...]], Any],
        names: list[str],
        *,
        shape: Sequence[int] | None = None,
    ) -> tuple[list[te.Tensor], te.Tensor]:
        spec, parameters = self.spec, []
        shape = sums.shape if shape is None else shape
        written = spec.output_dtype
        if spec.bias:
            parameters.append(te.placeholder((spec.output_channels,), self.data_type, name="bias"))
        if spec.residual:
            parameters.append(te.placeholder(shape, held(written), name="residual"))
        bias, residual = self.split(parameters)

        def finish(*place: Any) -> Any:
            value = sums(*place)
            if bias is not None:
                value = value + self.operand(bias[channel(place)])
            if residual is not None:
                value = value + widening(written, residual(*place))
            return rounding(written, activate(value, spec.activation))

        return parameters, te.compute(shape, finish, name="out", varargs_names=names)

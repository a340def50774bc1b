"""Operators on tensors of bfloat16 and float16 on CPUs: everything between them is in float32.

Sums and epilogue are float32, and the output is rounded once, or not at all if it is float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from chameleon_core.stages import Arrays
from numpy.typing import NDArray

from chameleon_tvm.instructions.conversions import rounding, widening
from chameleon_tvm.late_tvm import te
from chameleon_tvm.operators.activations import activate
from chameleon_tvm.operators.base import seeded_array
from chameleon_tvm.operators.epilogue import Epilogue
from chameleon_tvm.operators.spec import FusedSpec
from chameleon_tvm.types import STORAGE


class HalfEpilogue(Epilogue):
    """Operands and epilogue of an operator on bfloat16 or float16 tensors.

    Args:
        spec: the operator.
    """

    def __init__(self, spec: FusedSpec) -> None:
        super().__init__(spec)
        self.data_type = STORAGE[spec.dtype].storage_dtype
        self.weights_type = self.centred_type = self.data_type

    def operands(self, data: tuple[int, ...], weights: tuple[int, ...]) -> Arrays:
        dtype = self.spec.dtype
        return [seeded_array(data, dtype, 0), seeded_array(weights, dtype, 1)]

    def stored(self, place: int, array: NDArray[Any]) -> NDArray[Any]:
        added = self.spec.residual and place == 2 + self.spec.bias
        return STORAGE[self.spec.output_dtype if added else self.spec.dtype].stored(array)

    def logical(self, outputs: Arrays) -> Arrays:
        return [STORAGE[self.spec.output_dtype].real(one) for one in outputs]

    def operand(self, element: Any) -> Any:
        return widening(STORAGE[self.spec.dtype], element)

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
        written = STORAGE[spec.output_dtype]
        if spec.bias:
            parameters.append(te.placeholder((spec.output_channels,), self.data_type, name="bias"))
        if spec.residual:
            parameters.append(te.placeholder(shape, written.storage_dtype, name="residual"))
        bias, residual = self.split(parameters)

        def finish(*place: Any) -> Any:
            value = sums(*place)
            if bias is not None:
                value = value + self.operand(bias[channel(place)])
            if residual is not None:
                value = value + widening(written, residual(*place))
            return rounding(written, activate(value, spec.activation))

        return parameters, te.compute(shape, finish, name="out", varargs_names=names)

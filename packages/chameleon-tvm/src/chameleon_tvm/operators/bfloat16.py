"""Operators on bfloat16 tensors on CPUs: buffers of 16-bit integers, everything else in float32.

TVM computes with its own bfloat16 in float32 and rounds in between; here sums and epilogue are
float32, and the output is rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from chameleon_core.stages import Arrays
from numpy.typing import NDArray

from chameleon_tvm.operators.base import seeded_array
from chameleon_tvm.operators.epilogue import Epilogue
from chameleon_tvm.operators.spec import BFLOAT16, FusedSpec

if TYPE_CHECKING:
    from chameleon_tvm.quick_tvm import te

BITS = "uint16"
"""What buffers hold: the upper half of a float32."""


def real(array: NDArray[Any]) -> NDArray[np.float32]:
    """Numbers as float32, exactly: those of bfloat16, and their bits.

    Args:
        array: of bfloat16, or its bits in uint16, or of float32; of any shape.
    """
    if array.dtype.name == BFLOAT16:
        array = array.view(np.uint16)
    if array.dtype == np.uint16:
        return np.left_shift(array.astype(np.uint32), 16).view(np.float32)
    return array.astype(np.float32, copy=False)


class Bfloat16Epilogue(Epilogue):
    """Operands and epilogue of an operator on bfloat16 tensors.

    Args:
        spec: the operator.
    """

    operand_type: ClassVar[str] = "float32"

    def __init__(self, spec: FusedSpec) -> None:
        super().__init__(spec)
        self.data_type = self.weights_type = self.centred_type = BITS

    def operands(self, data: tuple[int, ...], weights: tuple[int, ...]) -> Arrays:
        return [seeded_array(data, BFLOAT16, 0), seeded_array(weights, BFLOAT16, 1)]

    def stored(self, array: NDArray[Any]) -> NDArray[Any]:
        from chameleon_tvm.instructions.bfloat16 import rounded  # noqa: PLC0415 - needs TVM

        if array.dtype == np.float32:
            return rounded(array)  # a network's own
        return array.view(np.uint16) if array.dtype.name == BFLOAT16 else array

    def logical(self, outputs: Arrays) -> Arrays:
        return [real(one) for one in outputs]

    def operand(self, element: Any) -> Any:
        from chameleon_tvm.instructions.bfloat16 import widening  # noqa: PLC0415 - needs TVM

        return widening(element, 1)

    def apply(
        self,
        sums: te.Tensor,
        channel: Callable[[tuple[Any, ...]], Any],
        names: list[str],
        *,
        shape: Sequence[int] | None = None,
    ) -> tuple[list[te.Tensor], te.Tensor]:
        from chameleon_tvm.instructions.bfloat16 import rounding  # noqa: PLC0415 - needs TVM
        from chameleon_tvm.operators.activations import activate  # noqa: PLC0415 - needs TVM
        from chameleon_tvm.quick_tvm import te  # noqa: PLC0415 - see ``Operator``

        spec, parameters = self.spec, []
        shape = sums.shape if shape is None else shape
        if spec.bias:
            parameters.append(te.placeholder((spec.output_channels,), BITS, name="bias"))
        if spec.residual:
            parameters.append(te.placeholder(shape, BITS, name="residual"))
        bias, residual = self.split(parameters)

        def finish(*place: Any) -> Any:
            value = sums(*place)
            if bias is not None:
                value = value + self.operand(bias[channel(place)])
            if residual is not None:
                value = value + self.operand(residual(*place))
            return rounding(activate(value, spec.activation), 1)

        return parameters, te.compute(shape, finish, name="out", varargs_names=names)

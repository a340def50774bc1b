"""Operators on quantized tensors: integer sums, and their conversion to outputs.

An integer ``q`` represents the real number ``scale * (q - zero_point)`` (Jacob et al. 2018,
equation 1, arXiv 1712.05877). Data are uint8 with one scale and zero point. Weights are int8 with a
scale for each output channel and no zero point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np
from chameleon_core.stages import Arrays
from numpy.typing import NDArray

from chameleon_tvm.late_tvm import te
from chameleon_tvm.operators.activation_arrays import Exact
from chameleon_tvm.operators.activations import activated
from chameleon_tvm.operators.base import seeded_array, seeded_integers
from chameleon_tvm.operators.epilogue import Epilogue
from chameleon_tvm.operators.quantized_products import LARGEST, KernelNumbers
from chameleon_tvm.operators.requantizing import finished
from chameleon_tvm.operators.specs import FusedSpec
from chameleon_tvm.types import COMPUTE, FLOAT32, INT32, STORAGE, UINT8

PARAMETERS = 5
"""Number of fields of ``Quantization``."""


@attrs.frozen(kw_only=True)
class Quantization(KernelNumbers):
    """The constants of an int8 operator that all channels share.

    The kernel gets them as one float32 array, in this order.

    Attributes:
        data_zero_point: Zero point of the data.
        residual_scale: Scale of the residual, if it is uint8.
        residual_zero_point: Zero point of the residual, if it is uint8.
        out_multiplier: One over the scale of the output, if it is uint8; above zero.
        out_zero_point: Zero point of the output, if it is uint8.
    """

    data_zero_point: float
    residual_scale: float = 1.0
    residual_zero_point: float = 0.0
    out_multiplier: float = 1.0
    out_zero_point: float = 0.0


_BOUNDED = frozenset({"sigmoid", "tanh", "hardsigmoid"})
"""Activations whose outputs have a magnitude of at most one."""


class QuantizedEpilogue(Epilogue):
    """Operands and epilogue of an int8 operator.

    Inputs are data, weights, scale (O,), bias (O,) of int32, quantization (5,), [residual]. The
    residual has the output's dtype. ``sums`` of ``(data - data_zero_point) * weights`` are exact in
    int32, and padding is real zero. The output in float32 is

        real = activation(float32(sums + bias) * scale + residual)

    A residual in uint8 counts as ``(residual - residual_zero_point) * residual_scale``. The output
    in uint8 is ``round(real * out_multiplier) + out_zero_point``, clipped to 0 to 255, with halves
    rounded to even numbers.

    Args:
        spec: The operator's arguments.
    """

    operand_type = INT32

    def __init__(self, spec: FusedSpec) -> None:
        super().__init__(spec)
        kind = COMPUTE[spec.dtype]
        self.data_type, self.weights_type = kind.data.storage_dtype, kind.weights.storage_dtype
        self.centred_type = self.operand_type

    @property
    def _rounds(self) -> bool:
        """Whether outputs are rounded to integers."""
        return STORAGE[self.spec.output_dtype].whole

    @property
    def constants(self) -> frozenset[int]:
        return frozenset({1, 2, 3, 4})

    def operands(self, data: tuple[int, ...], weights: tuple[int, ...]) -> Arrays:
        kind = COMPUTE[self.spec.dtype]
        return [seeded_integers(data, kind.data, 0), seeded_integers(weights, kind.weights, 1)]

    def inputs(self) -> Arrays:
        """Random inputs for which uint8 outputs cover their whole range, and a few are clipped."""
        spec = self.spec
        channels = (spec.output_channels,)
        # The standard deviation of sums of products of independent, uniform numbers.
        typical = 256.0 * (2.0 * COMPUTE[spec.dtype].weights.magnitude) / 12.0 * spec.reduced**0.5
        arrays: Arrays = [
            (seeded_array(channels, FLOAT32, 2) * 0.25 + 0.75) / np.float32(typical),
            np.rint(seeded_array(channels, FLOAT32, 3) * typical).astype(np.int32),
            Quantization(
                data_zero_point=113.0,
                residual_scale=1.0 / 64.0,
                residual_zero_point=97.0,
                out_multiplier=100.0 if spec.activation in _BOUNDED else 40.0,
                out_zero_point=119.0,
            ).array,
        ]
        if spec.residual and self._rounds:
            arrays.append(seeded_integers(spec.result_shape, STORAGE[UINT8], 4))
        elif spec.residual:
            arrays.append(seeded_array(spec.result_shape, FLOAT32, 4))
        return arrays

    def centred(self, data: NDArray[Any], more: Arrays) -> Exact:
        zero = Quantization.of(more[2]).data_zero_point
        return data.astype(np.float64) - zero

    def reference(self, sums: Exact, more: Arrays) -> Exact:
        """The output that a kernel must compute, in the operator's logical layout.

        Sums are scaled in float32, as the class defines the output. Later steps use float64.

        Args:
            sums: Exact sums. Channels are axis 1.
            more: The inputs after the weights: scale, bias, quantization, [residual].
        """
        scale, bias, numbers, *residual = more
        known = Quantization.of(numbers)
        channel = (-1, *(1,) * (sums.ndim - 2))
        total = (sums + bias.astype(np.float64).reshape(channel)).astype(np.float32)
        real = (total * scale.reshape(channel)).astype(np.float64)
        if residual and self._rounds:
            steps = residual[0].astype(np.float64) - known.residual_zero_point
            real = real + steps * known.residual_scale
        elif residual:
            real = real + residual[0].astype(np.float64)
        real = activated(real, self.spec.activation)
        if not self._rounds:
            return real
        return np.clip(np.rint(real * known.out_multiplier) + known.out_zero_point, 0, LARGEST)

    @cached_property
    def _numbers(self) -> te.Tensor:
        return te.placeholder((PARAMETERS,), FLOAT32, name="quantization")

    def centred_element(self, element: Any) -> Any:
        return element.astype(INT32) - self._numbers[0].astype(INT32)

    def apply(
        self,
        sums: te.Tensor,
        channel: Callable[[tuple[Any, ...]], Any],
        names: list[str],
        *,
        shape: Sequence[int] | None = None,
    ) -> tuple[list[te.Tensor], te.Tensor]:
        spec, numbers = self.spec, self._numbers
        shape = sums.shape if shape is None else shape
        scale = te.placeholder((spec.output_channels,), FLOAT32, name="scale")
        bias = te.placeholder((spec.output_channels,), INT32, name="bias")
        residual = []
        if spec.residual:
            residual.append(te.placeholder(shape, spec.output_dtype, name="residual"))

        def finish(*index: Any) -> Any:
            real = (sums(*index) + bias[channel(index)]).astype(FLOAT32) * scale[channel(index)]
            added = residual[0](*index) if residual else None
            return finished(real, added, spec, [numbers[at] for at in range(PARAMETERS)])

        out = te.compute(shape, finish, name="out", varargs_names=names)
        return [scale, bias, numbers, *residual], out

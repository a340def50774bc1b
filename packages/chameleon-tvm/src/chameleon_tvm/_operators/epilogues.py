"""The inputs of operators, and their steps between sums and output: bias, residual, activation.

An integer ``q`` of an int8 operator represents the real number ``scale * (q - zero_point)`` (Jacob
et al. 2018, equation 1, arXiv 1712.05877). Data are uint8 with one scale and zero point. Weights
are int8 with a scale for each output channel and no zero point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import attrs
import numpy as np
from chameleon_core.plugin_api import Arrays, Task
from numpy.typing import NDArray

from chameleon_tvm import _emit as emit
from chameleon_tvm._late_tvm import te
from chameleon_tvm._operators.activation_arrays import Exact
from chameleon_tvm._operators.activations import activate, activated
from chameleon_tvm._operators.base import (
    TypedOperator,
    is_for_cpu,
    seeded_array,
    seeded_integers,
    to_comparable,
)
from chameleon_tvm._operators.requantization import LARGEST, PackedConstants, requantize
from chameleon_tvm._operators.spec import FusedSpec
from chameleon_tvm._types import COMPUTE, FLOAT32, INT32, STORAGE, UINT8


class Epilogue:
    """The inputs of an operator, and the steps from its sums to its output.

    The steps are bias, residual and activation, in float32. The output is rounded once.

    Args:
        on_cpu: Whether buffers have CPUs' storage dtypes, such as uint16 for bfloat16.
    """

    operand_type: ClassVar[str] = FLOAT32
    """Dtype in which data and weights are multiplied and summed."""

    def __init__(self, spec: FusedSpec, *, on_cpu: bool = False) -> None:
        self.spec = spec
        self._on_cpu = on_cpu
        self.data_type = self.weights_type = self.centred_type = self._buffers(spec.dtype)

    def _buffers(self, dtype: str) -> str:
        """Dtype of the buffers that hold a tensor of the given dtype."""
        return STORAGE[dtype].storage_dtype if self._on_cpu else dtype

    def _real(self, dtype: str, element: Any) -> Any:
        """An element of a tensor, converted to the dtype of sums, as an expression."""
        if self._on_cpu:
            return emit.widening(STORAGE[dtype], element)
        return element.astype(self.operand_type)

    def operands(self, data: tuple[int, ...], weights: tuple[int, ...]) -> Arrays:
        """Random logical data and weights of some shapes, the same in every process."""
        return [seeded_array(data, self.spec.dtype, 0), seeded_array(weights, self.spec.dtype, 1)]

    def stored(self, index: int, array: NDArray[Any]) -> NDArray[Any]:
        """Convert a logical input to the dtype of its buffer."""
        if not self._on_cpu:
            return array
        is_residual = self.spec.residual and index == 2 + self.spec.bias
        return STORAGE[self.spec.output_dtype if is_residual else self.spec.dtype].stored(array)

    def logical(self, outputs: Arrays) -> Arrays:
        """Convert the kernel's outputs to a dtype that can be compared with the reference."""
        if self._on_cpu:
            return [STORAGE[self.spec.output_dtype].real(array) for array in outputs]
        return to_comparable(outputs)

    def operand(self, element: Any) -> Any:
        """Convert an element of data or weights to the dtype in which products are computed."""
        return self._real(self.spec.dtype, element)

    def centred(self, data: NDArray[Any], more: Arrays) -> Exact:
        """Convert the data to float64 and subtract their zero point, for the reference."""
        del more
        return data.astype(np.float64)

    def centred_element(self, element: Any) -> Any:
        """An element of the data minus the zero point, if quantized, as a TensorIR expression."""
        return element

    @property
    def constants(self) -> frozenset[int]:
        """Positions of the inputs that never change between runs: weights and bias."""
        return frozenset({1, 2} if self.spec.bias else {1})

    def inputs(self) -> Arrays:
        """Random arrays for the inputs after the weights, the same in every process."""
        spec, arrays = self.spec, []
        if spec.bias:
            arrays.append(seeded_array((spec.output_channels,), spec.dtype, 2))
        if spec.residual:
            arrays.append(seeded_array(spec.result_shape, spec.output_dtype, 3))
        return arrays

    def split(self, more: Sequence[Any]) -> tuple[Any, Any]:
        """The bias and the residual among the inputs after the weights, or None for each."""
        rest = list(more)
        bias = rest.pop(0) if self.spec.bias else None
        return bias, rest.pop(0) if self.spec.residual else None

    def reference(self, sums: Exact, more: Arrays) -> Exact:
        """Compute the operator's logical output from its sums in float64, for checks."""
        bias, residual = self.split(more)
        if bias is not None:
            sums = sums + bias.astype(np.float64).reshape(-1, *(1,) * (sums.ndim - 2))
        if residual is not None:
            sums = sums + residual.astype(np.float64)
        return activated(sums, self.spec.activation)

    def apply(
        self,
        sums: te.Tensor,
        channel: Callable[[tuple[Any, ...]], Any],
        names: list[str],
        *,
        shape: Sequence[int] | None = None,
    ) -> tuple[list[te.Tensor], te.Tensor]:
        """Add the epilogue to the sums, as tensor expressions.

        Args:
            channel: A function from an index of the output in its physical layout to the channel.
            shape: Shape of the output, if it is smaller than that of ``sums``.

        Returns:
            The additional parameters ([bias], [residual]) and the output.
        """
        spec, parameters = self.spec, []
        shape = sums.shape if shape is None else shape
        if spec.plain and spec.dtype == sums.dtype:
            return [], sums
        if spec.bias:
            bias_type = self._buffers(spec.dtype)
            parameters.append(te.placeholder((spec.output_channels,), bias_type, name="bias"))
        if spec.residual:
            residual_type = self._buffers(spec.output_dtype)
            parameters.append(te.placeholder(shape, residual_type, name="residual"))
        bias, residual = self.split(parameters)

        def finish(*indices: Any) -> Any:
            value = sums(*indices)
            if bias is not None:
                value = value + self._real(spec.dtype, bias[channel(indices)])
            if residual is not None:
                value = value + self._real(spec.output_dtype, residual(*indices))
            value = activate(value, spec.activation)
            if self._on_cpu:
                return emit.rounding(STORAGE[spec.output_dtype], value)
            return value.astype(spec.dtype)

        return parameters, te.compute(shape, finish, name="out", varargs_names=names)


PARAMETERS = 5
"""Number of fields of ``Quantization``."""


@attrs.frozen(kw_only=True)
class Quantization(PackedConstants):
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
        """The logical output; sums are scaled in float32, later steps use float64."""
        scale, bias, numbers, *residual = more
        quantization = Quantization.of(numbers)
        channel = (-1, *(1,) * (sums.ndim - 2))
        total = (sums + bias.astype(np.float64).reshape(channel)).astype(np.float32)
        real = (total * scale.reshape(channel)).astype(np.float64)
        if residual and self._rounds:
            steps = residual[0].astype(np.float64) - quantization.residual_zero_point
            real = real + steps * quantization.residual_scale
        elif residual:
            real = real + residual[0].astype(np.float64)
        real = activated(real, self.spec.activation)
        if not self._rounds:
            return real
        return np.clip(
            np.rint(real * quantization.out_multiplier) + quantization.out_zero_point, 0, LARGEST
        )

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
            residual_element = residual[0](*index) if residual else None
            return requantize(
                real, residual_element, spec, [numbers[at] for at in range(PARAMETERS)]
            )

        out = te.compute(shape, finish, name="out", varargs_names=names)
        return [scale, bias, numbers, *residual], out


class EpilogueOperator(TypedOperator):
    """An operator with an epilogue. Inputs are data, weights, [bias], [residual]."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        if self.spec.quantized:
            self.epilogue: Epilogue = QuantizedEpilogue(self.spec)
        else:
            self.epilogue = Epilogue(self.spec, on_cpu=is_for_cpu(task.target))
        self.constants = self.epilogue.constants

    def inputs(self) -> Arrays:
        spec = self.spec
        data, weights = self.epilogue.operands(spec.input, spec.filter_shape)
        if spec.exact_weights:
            weights = STORAGE[spec.exact_weights].rounded(weights)
        return [data, weights, *self.epilogue.inputs()]

    def logical(self, outputs: Arrays) -> Arrays:
        return self.epilogue.logical(outputs)

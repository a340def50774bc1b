"""An operator's steps between its sums and its output: bias, residual and activation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from chameleon_core.stages import Arrays
from numpy.typing import NDArray

from chameleon_tvm import emit
from chameleon_tvm.late_tvm import te
from chameleon_tvm.operators.activation_arrays import Exact
from chameleon_tvm.operators.activations import activate, activated
from chameleon_tvm.operators.base import seeded_array, widened
from chameleon_tvm.operators.specs import FusedSpec
from chameleon_tvm.types import FLOAT32, STORAGE


class Epilogue:
    """The inputs of an operator, and the steps from its sums to its output.

    The steps are bias, residual and activation. All numbers between data and output are float32.
    The output is rounded once to its dtype.

    Args:
        spec: The operator's arguments.
        on_cpu: Whether buffers have CPUs' storage dtypes, such as uint16 for bfloat16. On GPUs,
            buffers have the operator's dtypes.

    Attributes:
        data_type: Dtype of the data.
        weights_type: Dtype of the weights.
        centred_type: Dtype of the expression that ``centred_element`` returns.
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
        """Convert a logical input to the dtype of its buffer. The layout does not change.

        Args:
            index: Position of the input among the operator's inputs.
            array: The logical input.
        """
        if not self._on_cpu:
            return array
        added = self.spec.residual and index == 2 + self.spec.bias
        return STORAGE[self.spec.output_dtype if added else self.spec.dtype].stored(array)

    def logical(self, outputs: Arrays) -> Arrays:
        """Convert the kernel's outputs to a dtype that can be compared with the reference."""
        if self._on_cpu:
            return [STORAGE[self.spec.output_dtype].real(array) for array in outputs]
        return widened(outputs)

    def operand(self, element: Any) -> Any:
        """Convert an element of data or weights to the dtype in which products are computed.

        The element and the result are TensorIR expressions.
        """
        return self._real(self.spec.dtype, element)

    def centred(self, data: NDArray[Any], more: Arrays) -> Exact:
        """Convert the data to float64, for the operator's reference.

        The zero point of quantized data is subtracted, so that padding is zero.

        Args:
            data: The data as the operator takes them.
            more: The operator's inputs after the weights.
        """
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
        """Random arrays for the optional inputs after data and weights: the bias, the residual.

        They are the same in every process.
        """
        spec, arrays = self.spec, []
        if spec.bias:
            arrays.append(seeded_array((spec.output_channels,), spec.dtype, 2))
        if spec.residual:
            arrays.append(seeded_array(spec.result_shape, spec.output_dtype, 3))
        return arrays

    def split(self, more: Sequence[Any]) -> tuple[Any, Any]:
        """Find bias and residual among the inputs after the weights.

        Either is None if the operator does not have it.
        """
        rest = list(more)
        bias = rest.pop(0) if self.spec.bias else None
        return bias, rest.pop(0) if self.spec.residual else None

    def reference(self, sums: Exact, more: Arrays) -> Exact:
        """Compute the operator's logical output from its sums in float64, for checks.

        Args:
            sums: The operator's sums before the epilogue. Channels are axis 1.
            more: The operator's inputs after the weights: [bias], [residual].
        """
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
            sums: The operator's sums in its physical layout, possibly in a wider dtype than the
                output.
            channel: A function of an index of the output in its physical layout. It returns the
                output channel.
            names: Names of the output's axes.
            shape: Shape of the output, if it is smaller than that of ``sums``; else None.

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

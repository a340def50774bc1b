"""The steps between an operator's sums and its output: bias, residual, activation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from chameleon_core.stages import Arrays
from numpy.typing import NDArray

from chameleon_tvm.instructions import conversions
from chameleon_tvm.late_tvm import te
from chameleon_tvm.operators.activation_arrays import Exact
from chameleon_tvm.operators.activations import activate, activated
from chameleon_tvm.operators.base import seeded_array, widened
from chameleon_tvm.operators.specs import FusedSpec
from chameleon_tvm.types import FLOAT32, STORAGE, tolerance_of


class Epilogue:
    """Operands and epilogue of one operator whose own inputs are data and weights.

    Everything between data and output is float32, and the output is rounded once, or not at all if
    it is float32.

    Args:
        spec: the operator.
        on_cpu: whether buffers hold numbers as CPUs store them; GPUs have types of their own.

    Attributes:
        data_type: dtype of the data.
        weights_type: dtype of the weights.
        centred_type: dtype of the result of ``centred_element``.
    """

    operand_type: ClassVar[str] = FLOAT32
    """What data and weights are multiplied in, and the type of sums."""

    def __init__(self, spec: FusedSpec, *, on_cpu: bool = False) -> None:
        self.spec = spec
        self._on_cpu = on_cpu
        self.data_type = self.weights_type = self.centred_type = self._buffers(spec.dtype)

    def _buffers(self, dtype: str) -> str:
        """Dtype of the buffers of a tensor."""
        return STORAGE[dtype].storage_dtype if self._on_cpu else dtype

    def _real(self, dtype: str, element: Any) -> Any:
        """An element of a tensor as what sums are, in an expression."""
        if self._on_cpu:
            return conversions.widening(STORAGE[dtype], element)
        return element.astype(self.operand_type)

    @property
    def tolerance(self) -> float:
        """Largest accepted |difference| over the largest |expected|."""
        return tolerance_of(self.spec.output_dtype)

    def operands(self, data: tuple[int, ...], weights: tuple[int, ...]) -> Arrays:
        """Deterministic logical data and weights of these shapes."""
        return [seeded_array(data, self.spec.dtype, 0), seeded_array(weights, self.spec.dtype, 1)]

    def stored(self, index: int, array: NDArray[Any]) -> NDArray[Any]:
        """A logical input as buffers hold it, in the same order.

        Args:
            index: which input it is.
            array: the input.
        """
        if not self._on_cpu:
            return array
        added = self.spec.residual and index == 2 + self.spec.bias
        return STORAGE[self.spec.output_dtype if added else self.spec.dtype].stored(array)

    def logical(self, outputs: Arrays) -> Arrays:
        """Outputs as numbers that can be compared."""
        if self._on_cpu:
            return [STORAGE[self.spec.output_dtype].real(array) for array in outputs]
        return widened(outputs)

    def operand(self, element: Any) -> Any:
        """An element of data or weights as it is multiplied, in an expression."""
        return self._real(self.spec.dtype, element)

    def centred(self, data: NDArray[Any], more: Arrays) -> Exact:
        """The data as what padding extends by zeros, in float64.

        Args:
            data: as the operator takes them.
            more: inputs after the weights.
        """
        del more
        return data.astype(np.float64)

    def centred_element(self, element: Any) -> Any:
        """The same of an element of the data, in an expression."""
        return element

    @property
    def constants(self) -> frozenset[int]:
        """Which of data, weights, [bias], [residual] never change between runs."""
        return frozenset({1, 2} if self.spec.bias else {1})

    def inputs(self) -> Arrays:
        """Deterministic logical inputs beside data and weights: [bias], [residual]."""
        spec, arrays = self.spec, []
        if spec.bias:
            arrays.append(seeded_array((spec.output_channels,), spec.dtype, 2))
        if spec.residual:
            arrays.append(seeded_array(spec.result_shape, spec.output_dtype, 3))
        return arrays

    def split(self, more: Sequence[Any]) -> tuple[Any, Any]:
        """Bias and residual, None if there is none, out of the inputs after the weights."""
        rest = list(more)
        bias = rest.pop(0) if self.spec.bias else None
        return bias, rest.pop(0) if self.spec.residual else None

    def reference(self, sums: Exact, more: Arrays) -> Exact:
        """The logical output in float64.

        Args:
            sums: the operator's own result; channels are axis 1.
            more: [bias], [residual].
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
        """The epilogue as tensor expressions.

        Args:
            sums: the operator's own result in its physical layout, perhaps of a wider type.
            channel: the output channel of a physical index.
            names: of the output's axes.
            shape: of the output, if there are more sums than outputs.

        Returns:
            The further parameters ([bias], [residual]) and the output.
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
                return conversions.rounding(STORAGE[spec.output_dtype], value)
            return value.astype(spec.dtype)

        return parameters, te.compute(shape, finish, name="out", varargs_names=names)

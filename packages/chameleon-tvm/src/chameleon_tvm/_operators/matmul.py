"""Matrix products with constant or varying right sides: TensorIR and float64 references."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from chameleon_core.plugin_api import Arrays, Task
from numpy.typing import NDArray

from chameleon_tvm._arrays import contiguous
from chameleon_tvm._emit import rounding, widening
from chameleon_tvm._late_tvm import te, tvm
from chameleon_tvm._operators.base import (
    TypedOperator,
    is_for_cpu,
    seeded_array,
    seeded_integers,
    to_comparable,
)
from chameleon_tvm._operators.epilogues import EpilogueOperator
from chameleon_tvm._operators.requantization import (
    PRODUCT_PARAMETERS,
    QuantizedProduct,
    example_product,
    requantize_product,
)
from chameleon_tvm._types import COMPUTE, FLOAT32, STORAGE


class Dense(EpilogueOperator):
    """The product (rows, features) x (units, features)^T of data and constant weights.

    Inputs are data, weights, [bias], [residual]. The unscheduled function takes weights as
    (features, units), so that its inner loop can be vectorized.
    """

    def arranged(self, index: int, array: NDArray[Any]) -> NDArray[Any]:
        array = self.epilogue.stored(index, array)
        return contiguous(array.T) if index == 1 else array

    def reference(self, inputs: Arrays) -> Arrays:
        data = self.epilogue.centred(inputs[0], inputs[2:])
        weights = inputs[1].astype(np.float64)
        return [self.epilogue.reference(data @ weights.T, inputs[2:])]

    def prim_func(self) -> tvm.tirx.PrimFunc:
        rows, features = self.spec.input
        operand = self.epilogue.operand
        centred = self.epilogue.centred_element
        data = te.placeholder((rows, features), self.epilogue.data_type, name="data")
        weights = te.placeholder(
            (features, self.spec.units), self.epilogue.weights_type, name="weights"
        )
        k = te.reduce_axis((0, features), name="k")
        sums = te.compute(
            (rows, self.spec.units),
            lambda m, n: te.sum(operand(centred(data[m, k])) * operand(weights[k, n]), axis=k),
            name="dense",
        )
        constants, out = self.epilogue.apply(sums, lambda indices: indices[1], ["m", "n"])
        return te.create_prim_func([data, weights, *constants, out])


class BatchMatmul(TypedOperator):
    """The product (batch, m, k) x (batch, k, n); the right side may be stored transposed.

    An int8 operator has a third input, the fields of :class:`.QuantizedProduct`.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._on_cpu = is_for_cpu(task.target)
        if self.spec.quantized:
            self.constants = frozenset({2})

    def inputs(self) -> Arrays:
        spec = self.spec
        if spec.quantized:
            data = COMPUTE[spec.dtype].data
            sides = [seeded_integers(shape, data, at) for at, shape in enumerate((spec.a, spec.b))]
            return [*sides, example_product(spec.a[2]).array]
        return [seeded_array(shape, spec.dtype, at) for at, shape in enumerate((spec.a, spec.b))]

    def arranged(self, index: int, array: NDArray[Any]) -> NDArray[Any]:
        del index
        if self.spec.quantized or not self._on_cpu:
            return array
        return STORAGE[self.spec.dtype].stored(array)

    def logical(self, outputs: Arrays) -> Arrays:
        kind = STORAGE[self.spec.output_dtype]
        if kind.whole or not self._on_cpu:
            return to_comparable(outputs)
        return [kind.real(array) for array in outputs]

    def reference(self, inputs: Arrays) -> Arrays:
        spec = self.spec
        left, right = (array.astype(np.float64) for array in inputs[:2])
        quantization = QuantizedProduct.of(inputs[2]) if spec.quantized else None
        if quantization is not None:
            left, right = left - quantization.left_zero_point, right - quantization.right_zero_point
        sums = left @ (right.swapaxes(1, 2) if spec.transpose_b else right)
        return [sums if quantization is None else quantization.output(sums, spec.output_dtype)]

    @cached_property
    def _numbers(self) -> te.Tensor:
        return te.placeholder((PRODUCT_PARAMETERS,), FLOAT32, name="quantization")

    def _operand(self, side: int, element: Any) -> Any:
        """An element of a side in the form that is multiplied, as an expression."""
        if self.spec.quantized:
            return element.astype("int32") - self._numbers[side].astype("int32")
        if self._on_cpu:
            return widening(STORAGE[self.spec.dtype], element)
        return element.astype(FLOAT32)

    def _to_output(self, sums: Any) -> Any:
        """A sum in the form that is written to the output, as an expression."""
        output_dtype = self.spec.output_dtype
        if self.spec.quantized:
            quantization = [self._numbers[at] for at in range(PRODUCT_PARAMETERS)]
            return requantize_product(sums.astype(FLOAT32), output_dtype, quantization)
        return rounding(STORAGE[output_dtype], sums) if self._on_cpu else sums.astype(output_dtype)

    def prim_func(self) -> tvm.tirx.PrimFunc:
        spec = self.spec
        data = COMPUTE[spec.dtype].data
        element = data.storage_dtype if self._on_cpu else data.name
        left = te.placeholder(spec.a, element, name="left")
        right = te.placeholder(spec.b, element, name="right")
        k = te.reduce_axis((0, spec.a[2]), name="k")

        def product(b: Any, m: Any, n: Any) -> Any:
            right_element = right[b, n, k] if spec.transpose_b else right[b, k, n]
            return te.sum(self._operand(0, left[b, m, k]) * self._operand(1, right_element), axis=k)

        out = sums = te.compute(spec.result_shape, product, name="batch_matmul")
        if spec.dtype != FLOAT32:
            out = te.compute(
                spec.result_shape, lambda b, m, n: self._to_output(sums[b, m, n]), name="out"
            )
        quantization = [self._numbers] if spec.quantized else []
        return te.create_prim_func([left, right, *quantization, out])

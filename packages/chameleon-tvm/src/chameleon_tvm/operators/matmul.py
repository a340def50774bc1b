"""Matrix products with constant weights: TensorIR and a float64 reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from chameleon_core.stages import Arrays
from numpy.typing import NDArray

from chameleon_tvm.arrays import contiguous
from chameleon_tvm.late_tvm import te, tvm
from chameleon_tvm.operators.epilogues import FusedOperator


class Dense(FusedOperator):
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
        more, out = self.epilogue.apply(sums, lambda indices: indices[1], ["m", "n"])
        return te.create_prim_func([data, weights, *more, out])

"""The base class of operators with an epilogue: bias, residual and activation."""

from __future__ import annotations

from chameleon_core.stages import Arrays
from chameleon_core.task import Task

from chameleon_tvm.operators.base import TypedOperator, is_for_cpu
from chameleon_tvm.operators.epilogue import Epilogue
from chameleon_tvm.operators.quantized import QuantizedEpilogue


class FusedOperator(TypedOperator):
    """An operator with an epilogue. Inputs are data, weights, [bias], [residual].

    Inputs of int8 operators are listed in :class:`.QuantizedEpilogue`.

    Args:
        task: The task to compute.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        if self.spec.quantized:
            self.epilogue: Epilogue = QuantizedEpilogue(self.spec)
        else:
            self.epilogue = Epilogue(self.spec, on_cpu=is_for_cpu(task.target))
        self.constants = self.epilogue.constants

    def inputs(self) -> Arrays:
        spec = self.spec
        return [*self.epilogue.operands(spec.input, spec.filter_shape), *self.epilogue.inputs()]

    def logical(self, outputs: Arrays) -> Arrays:
        return self.epilogue.logical(outputs)

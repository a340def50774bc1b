"""The base class of operators with an epilogue: bias, residual and activation."""

from __future__ import annotations

from chameleon_core.stages import Arrays
from chameleon_core.task import Task

from chameleon_tvm.operators.base import Operator, is_for_cpu
from chameleon_tvm.operators.epilogue import Epilogue
from chameleon_tvm.operators.quantized import QuantizedEpilogue
from chameleon_tvm.operators.specs import ConvolutionSpec, DenseSpec


class FusedOperator(Operator):
    """An operator with an epilogue. Inputs are data, weights, [bias], [residual].

    Inputs of int8 operators are listed in :class:`.QuantizedEpilogue`.

    Args:
        task: The task to compute.
        spec: The task's arguments.
    """

    def __init__(self, task: Task, spec: ConvolutionSpec | DenseSpec) -> None:
        super().__init__(task)
        self.spec = spec
        if spec.quantized:
            self.epilogue: Epilogue = QuantizedEpilogue(spec)
        else:
            self.epilogue = Epilogue(spec, on_cpu=is_for_cpu(task.target))
        self.constants = self.epilogue.constants

    @property
    def tolerance(self) -> float:
        return self.epilogue.tolerance

    def inputs(self) -> Arrays:
        spec = self.spec
        return [*self.epilogue.operands(spec.input, spec.filter_shape), *self.epilogue.inputs()]

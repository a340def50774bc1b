"""The operator for any TensorIR function that a task carries."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from chameleon_core.api import words
from chameleon_core.plugin_api import Arrays, ConfigError, Task

from chameleon_tvm._late_tvm import tvm
from chameleon_tvm._opaque import blocks_pipeline
from chameleon_tvm._operators.base import Operator, seeded_array
from chameleon_tvm._operators.prim_functions import loaded_function
from chameleon_tvm._words import TVM_ERRORS


class PrimFuncOperator(Operator):
    """A user's TensorIR function as an operator, whose inputs are the parameters it only reads."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        names = [str(parameter["name"]) for parameter in task.arguments["parameters"]]
        constants = task.arguments["constants"]
        self.constants = frozenset(names.index(name) for name in constants)

    @cached_property
    def _function(self) -> tvm.tirx.PrimFunc:
        try:
            return loaded_function(self.task.arguments["function"])
        except TVM_ERRORS as error:
            problem = words.in_one_line(error)[-300:]
            raise ConfigError(
                f"the function of task {self.task.name!r} cannot be read: {problem}",
                hint="It is damaged, or from another version of TVM: make the task again.",
            ) from error

    def prim_func(self) -> tvm.tirx.PrimFunc:
        return self._function

    def inputs(self) -> Arrays:
        return [
            _array(parameter, number)
            for number, parameter in enumerate(self.task.arguments["parameters"])
            if not parameter["output"]
        ]

    def reference(self, inputs: Arrays) -> Arrays:
        source = self.task.arguments["reference"]
        if source is not None:
            return _run_reference(source, inputs)
        return self._run_unscheduled(inputs)

    @property
    def tolerance(self) -> float:
        return float(self.task.arguments["tolerance"])

    def _run_unscheduled(self, inputs: Arrays) -> Arrays:
        """The outputs of the unscheduled function, compiled for the host without optimization."""
        main = self._function.with_attr("global_symbol", "main")
        with tvm.transform.PassContext(opt_level=0):
            module = tvm.IRModule({"main": main})
            target, pipeline = {"kind": "llvm"}, blocks_pipeline()
            executable = tvm.compile(module, target=target, tir_pipeline=pipeline).jit()
        outputs = [
            tvm.runtime.tensor(np.zeros(tuple(parameter["shape"]), parameter["dtype"]))
            for parameter in self.task.arguments["parameters"]
            if parameter["output"]
        ]
        executable["main"](*[tvm.runtime.tensor(array) for array in inputs], *outputs)
        return [output.numpy() for output in outputs]


def _array(parameter: dict[str, Any], stream: int) -> np.ndarray[Any, Any]:
    shape, dtype = tuple(parameter["shape"]), np.dtype(parameter["dtype"])
    if dtype.kind == "f":
        return seeded_array(shape, dtype.name, stream)
    rng = np.random.default_rng([20200426, stream, *shape])
    return rng.integers(0, 2 if dtype.kind == "b" else 8, shape).astype(dtype)


def _run_reference(source: dict[str, str], inputs: Arrays) -> Arrays:
    namespace: dict[str, Any] = {"__name__": "_chameleon_reference"}
    exec(compile(source["text"], "<reference>", "exec"), namespace)  # noqa: S102 - the user's own function
    try:
        outputs = namespace[source["function"]](
            *[array.astype(_reference_dtype(array)) for array in inputs]
        )
    except Exception as error:  # the user's code may raise anything
        shapes = ", ".join(str(array.shape) for array in inputs)
        raise ConfigError(
            f"the reference '{source['function']}' fails: {type(error).__name__}: {error}",
            hint=f"It is called with the function's inputs as NumPy arrays, here of {shapes}.",
        ) from error
    return [np.asarray(o) for o in (outputs if isinstance(outputs, (list, tuple)) else [outputs])]


def _reference_dtype(array: np.ndarray[Any, Any]) -> Any:
    return np.float64 if array.dtype.kind == "f" else array.dtype

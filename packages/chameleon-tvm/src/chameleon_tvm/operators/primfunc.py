"""Any TensorIR function of a user's own, as a task.

The task carries the function itself as JSON, and the source text of a reference in NumPy, so
that a worker process, or another machine years later, needs none of the user's files.
"""

from __future__ import annotations

import inspect
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from chameleon_core.errors import ConfigError
from chameleon_core.stages import Arrays
from chameleon_core.task import Task

from chameleon_tvm.operators.base import Operator, seeded_array
from chameleon_tvm.sources import named_object

if TYPE_CHECKING:
    from chameleon_tvm.operators.specs import PrimFuncSpec
    from chameleon_tvm.quick_tvm import tvm


TOLERANCE = 1e-3
"""Where nobody says anything else."""


class PrimFuncOperator(Operator):
    """A user's function; inputs are the parameters it only reads, outputs the ones it writes."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        names = [str(parameter["name"]) for parameter in task.arguments["parameters"]]
        constants = task.arguments["constants"]
        self.constants = frozenset(names.index(name) for name in constants)

    @cached_property
    def _function(self) -> tvm.tirx.PrimFunc:
        from chameleon_tvm.quick_tvm import tvm  # noqa: PLC0415 - see ``Operator``

        return tvm.ir.load_json(self.task.arguments["function"])

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
            return _computed(source, inputs)
        return self._unscheduled(inputs)

    @property
    def tolerance(self) -> float:
        return float(self.task.arguments["tolerance"])

    def _unscheduled(self, inputs: Arrays) -> Arrays:
        """What the function computes as written, compiled for the host without optimization."""
        from chameleon_tvm.quick_tvm import tvm  # noqa: PLC0415 - see ``Operator``

        named = self._function.with_attr("global_symbol", "main")
        with tvm.transform.PassContext(opt_level=0):
            built = tvm.compile(tvm.IRModule({"main": named}), target={"kind": "llvm"}).jit()
        outputs = [
            tvm.runtime.tensor(np.zeros(tuple(parameter["shape"]), parameter["dtype"]))
            for parameter in self.task.arguments["parameters"]
            if parameter["output"]
        ]
        built["main"](*[tvm.runtime.tensor(array) for array in inputs], *outputs)
        return [output.numpy() for output in outputs]


def primfunc_task(spec: PrimFuncSpec, name: str, target: str) -> Task:
    """The task of a user's function.

    Args:
        spec: names the function and, perhaps, a reference and its constant parameters.
        name: of the task.
        target: the resolved target.

    Raises:
        ConfigError: there is no such file, function, parameter or PrimFunc, or TVM cannot
            schedule it.
    """
    loaded = named_object(spec.source, f"primfunc {name}")
    function = _prim_func(loaded, spec.source, name)
    arguments = function_arguments(function, name)
    known = [one["name"] for one in arguments["parameters"] if not one["output"]]
    for constant in spec.constants:
        if constant not in known:
            raise ConfigError(
                f"primfunc {name}: {constant!r} is no input of {spec.source}",
                hint=f"Its inputs are {', '.join(known)}.",
            )
    reference = None
    if spec.reference:
        computing = named_object(spec.reference, f"primfunc {name}")
        reference = _portable_source(computing, spec.reference, name)
    return Task(
        name=name,
        operator=spec.kind,
        arguments={
            **arguments,
            "constants": list(spec.constants),
            "reference": reference,
            "tolerance": spec.tolerance,
        },
        target=target,
        flop=function_flop(function, name),
        weight=spec.weight,
    )


def function_arguments(function: tvm.tirx.PrimFunc, name: str) -> dict[str, Any]:
    """The arguments of a task that is a function, without constants and a reference of its own.

    Args:
        function: of blocks with static shapes; its inputs come before its outputs.
        name: of the task.

    Raises:
        ConfigError: it is no such function.
    """
    from chameleon_tvm.quick_tvm import tvm  # noqa: PLC0415 - see ``Operator``

    return {
        "function": tvm.ir.save_json(function),
        "parameters": _parameters(function, name),
        "constants": [],
        "reference": None,
        "tolerance": TOLERANCE,
    }


def _portable_source(function: Any, named: str, name: str) -> dict[str, str]:
    """The text of the module that defines a reference, and which function it is."""
    try:
        text = Path(inspect.getfile(function)).read_text(encoding="utf-8")
    except (TypeError, OSError) as error:
        raise ConfigError(
            f"primfunc {name}: the source of {named} cannot be read: {error}",
            hint="Define the reference as a function in a Python file.",
        ) from error
    return {"text": text, "function": function.__name__}


# -- the function ---------------------------------------------------------------------------


def _prim_func(loaded: Any, source: str, name: str) -> tvm.tirx.PrimFunc:
    from chameleon_tvm.quick_tvm import tvm  # noqa: PLC0415 - see ``Operator``

    if not isinstance(loaded, tvm.tirx.PrimFunc) and callable(loaded):
        try:
            loaded = loaded()
        except Exception as error:
            raise ConfigError(
                f"primfunc {name}: {source} failed: {type(error).__name__}: {error}",
                hint="It is called without arguments and returns a PrimFunc.",
            ) from error
    if not isinstance(loaded, tvm.tirx.PrimFunc):
        raise ConfigError(
            f"primfunc {name}: {source} gives a {type(loaded).__name__}, not a PrimFunc",
            hint="Return te.create_prim_func([...]), or decorate it with TVMScript's prim_func.",
        )
    return loaded.without_attr("global_symbol") if loaded.attrs else loaded


def _parameters(function: tvm.tirx.PrimFunc, name: str) -> list[dict[str, Any]]:
    """Name, shape, dtype and direction of every parameter, inputs first."""
    from chameleon_tvm.quick_tvm import Schedule  # noqa: PLC0415 - see ``Operator``

    hint = "Write blocks (te.create_prim_func, or TVMScript with T.sblock) of static shapes."
    try:
        schedule = Schedule(function)
        handles = schedule.get_child_blocks(schedule.get_sblock("root"))
        blocks = [schedule.get(handle) for handle in handles]
    except Exception as error:
        raise ConfigError(
            f"primfunc {name}: TVM cannot schedule this function", hint=hint
        ) from error
    written = {str(r.source.name) for block in blocks for r in block.writes}
    if not blocks:
        raise ConfigError(f"primfunc {name}: the function has no block to schedule", hint=hint)
    found = []
    for parameter in function.params:
        try:
            shape = [int(extent) for extent in parameter.shape]
        except (TypeError, AttributeError) as error:
            raise ConfigError(
                f"primfunc {name}: parameter {parameter.name!r} has no static shape", hint=hint
            ) from error
        output = str(parameter.name) in written
        found.append(
            {
                "name": str(parameter.name),
                "shape": shape,
                "dtype": str(parameter.dtype),
                "output": output,
            }
        )
    directions = [bool(parameter["output"]) for parameter in found]
    if directions != sorted(directions) or not any(directions):
        raise ConfigError(
            f"primfunc {name}: parameters must be the inputs, then the outputs",
            hint="Put the buffers that the function writes last.",
        )
    return found


def function_flop(function: tvm.tirx.PrimFunc, name: str) -> float:
    """Floating-point operations of a function; elements of its parameters where it has none.

    Raises:
        ConfigError: they cannot be counted.
    """
    from chameleon_tvm.quick_tvm import tvm  # noqa: PLC0415 - see ``Operator``

    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    try:
        counted = float(tvm.s_tir.analysis.estimate_tir_flops(module))
    except Exception as error:
        raise ConfigError(
            f"primfunc {name}: its floating-point operations cannot be counted",
            hint="Loops need constant extents.",
        ) from error
    # A function that only moves data has none; throughput then counts its elements.
    return counted or float(sum(int(np.prod([int(e) for e in p.shape])) for p in function.params))


# -- data -----------------------------------------------------------------------------------


def _array(parameter: dict[str, Any], stream: int) -> np.ndarray[Any, Any]:
    shape, dtype = tuple(parameter["shape"]), np.dtype(parameter["dtype"])
    if dtype.kind == "f":
        return seeded_array(shape, dtype.name, stream)
    rng = np.random.default_rng([20200426, stream, *shape])
    return rng.integers(0, 2 if dtype.kind == "b" else 8, shape).astype(dtype)


def _computed(source: dict[str, str], inputs: Arrays) -> Arrays:
    namespace: dict[str, Any] = {"__name__": "_chameleon_reference"}
    exec(compile(source["text"], "<reference>", "exec"), namespace)  # noqa: S102 - the user's own
    try:
        outputs = namespace[source["function"]](*[array.astype(_exact(array)) for array in inputs])
    except Exception as error:
        shapes = ", ".join(str(array.shape) for array in inputs)
        raise ConfigError(
            f"the reference '{source['function']}' fails: {type(error).__name__}: {error}",
            hint=f"It is called with the function's inputs as NumPy arrays, here of {shapes}.",
        ) from error
    return [np.asarray(o) for o in (outputs if isinstance(outputs, (list, tuple)) else [outputs])]


def _exact(array: np.ndarray[Any, Any]) -> Any:
    return np.float64 if array.dtype.kind == "f" else array.dtype

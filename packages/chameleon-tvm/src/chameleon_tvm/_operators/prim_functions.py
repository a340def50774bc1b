"""Reads a TensorIR function that the user wrote, so that a task can carry the function as JSON.

The task also holds the source text of its NumPy reference, so workers need none of the files.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from chameleon_core.plugin_api import ConfigError

from chameleon_tvm._late_tvm import Schedule, tvm
from chameleon_tvm._opaque import plain_arithmetic, register_operators
from chameleon_tvm._sources import named_object
from chameleon_tvm._words import TVM_ERRORS

TOLERANCE = 1e-3
"""The tolerance of a task if the user gives none."""


def read_function(
    source: str, reference: str, constants: Sequence[str], name: str
) -> tuple[dict[str, Any], float]:
    """Import a user's TensorIR function and its reference, in the form that a task carries.

    Returns:
        The task's arguments, and the number of floating-point operations of one evaluation.

    Raises:
        ConfigError: The file, the function or an input does not exist, the object is no PrimFunc,
            or TVM cannot schedule it.
    """
    function = _prim_func(named_object(source, f"primfunc {name}"), source, name)
    arguments = function_arguments(function, name)
    known = [parameter["name"] for parameter in arguments["parameters"] if not parameter["output"]]
    for constant in constants:
        if constant not in known:
            raise ConfigError(
                f"primfunc {name}: {constant!r} is no input of {source}",
                hint=f"Its inputs are {', '.join(known)}.",
            )
    text = None
    if reference:
        function_object = named_object(reference, f"primfunc {name}")
        text = _portable_source(function_object, reference, name)
    arguments = {**arguments, "constants": list(constants), "reference": text}
    return arguments, function_flop(function, name)


def function_arguments(function: tvm.tirx.PrimFunc, name: str) -> dict[str, Any]:
    """Make the keyword arguments of the operator ``prim_function`` from a TensorIR function.

    The arguments contain neither values for constant inputs nor a reference function in Python.

    Args:
        function: A TensorIR function with static shapes, whose inputs come before its outputs.
        name: Name of the task, for error messages.

    Raises:
        ConfigError: The function does not have this form.
    """
    return {
        "function": tvm.ir.save_json(function),
        "parameters": _parameters(function, name),
        "constants": [],
        "reference": None,
        "tolerance": TOLERANCE,
    }


def loaded_function(text: str) -> tvm.tirx.PrimFunc:
    """Read a TensorIR function from JSON that ``tvm.ir.save_json`` wrote.

    ``tvm.ir.load_json`` first converts the JSON of earlier versions of TVM. That takes many times
    as long as reading it, so this function converts only what TVM cannot read.
    """
    register_operators()
    try:
        return tvm.ir.base.from_json_graph_str(text)
    except TVM_ERRORS:
        return tvm.ir.load_json(text)


def _portable_source(function: Any, source: str, name: str) -> dict[str, str]:
    """The text of the module that defines a reference function, and the function's name."""
    try:
        text = Path(inspect.getfile(function)).read_text(encoding="utf-8")
    except (TypeError, OSError) as error:
        raise ConfigError(
            f"primfunc {name}: the source of {source} cannot be read: {error}",
            hint="Define the reference as a function in a Python file.",
        ) from error
    return {"text": text, "function": function.__name__}


def _prim_func(loaded: Any, source: str, name: str) -> tvm.tirx.PrimFunc:
    if not isinstance(loaded, tvm.tirx.PrimFunc) and callable(loaded):
        try:
            loaded = loaded()
        except Exception as error:  # the user's code may raise anything
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
    """Name, shape, dtype and direction of every parameter. Inputs come first."""
    hint = "Write blocks (te.create_prim_func, or TVMScript with T.sblock) of static shapes."
    try:
        schedule = Schedule(function)
        handles = schedule.get_child_blocks(schedule.get_sblock("root"))
        blocks = [schedule.get(handle) for handle in handles]
    except TVM_ERRORS as error:
        raise ConfigError(
            f"primfunc {name}: TVM cannot schedule this function", hint=hint
        ) from error
    outputs = {str(r.source.name) for block in blocks for r in block.writes}
    if not blocks:
        raise ConfigError(f"primfunc {name}: the function has no block to schedule", hint=hint)
    parameters = []
    for parameter in function.params:
        try:
            shape = [int(extent) for extent in parameter.shape]
        except (TypeError, AttributeError) as error:
            raise ConfigError(
                f"primfunc {name}: parameter {parameter.name!r} has no static shape", hint=hint
            ) from error
        output = str(parameter.name) in outputs
        parameters.append(
            {
                "name": str(parameter.name),
                "shape": shape,
                "dtype": str(parameter.dtype),
                "output": output,
            }
        )
    directions = [bool(parameter["output"]) for parameter in parameters]
    if directions != sorted(directions) or not any(directions):
        raise ConfigError(
            f"primfunc {name}: parameters must be the inputs, then the outputs",
            hint="Put the buffers that the function writes last.",
        )
    return parameters


def function_flop(function: tvm.tirx.PrimFunc, name: str) -> float:
    """Number of floating-point operations of a user's TensorIR function.

    If it is zero, the number of elements of the parameters is used instead.

    Args:
        function: The function.
        name: Name of the task, for error messages.

    Raises:
        ConfigError: TVM cannot count the operations.
    """
    plain = plain_arithmetic(function)
    module = tvm.IRModule({"main": plain.with_attr("global_symbol", "main")})
    try:
        operations = float(tvm.s_tir.analysis.estimate_tir_flops(module))
    except TVM_ERRORS as error:
        raise ConfigError(
            f"primfunc {name}: its floating-point operations cannot be counted",
            hint="Loops need constant extents.",
        ) from error
    # A function that only moves data has none; throughput then counts its elements.
    return operations or float(
        sum(int(np.prod([int(e) for e in p.shape])) for p in function.params)
    )

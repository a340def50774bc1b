"""Finds the operator because of which a network cannot be compiled, for the error message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chameleon_tvm.api import AutoOptions, AutoSpace, first_line

from chameleon_networks._compile.compile import compile_network
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._graph.relax_utils import bindings_of, operator_name, relax
from chameleon_networks._source_location import SourceLocation


def empty_kernels(target: str) -> Kernels:
    """The kernels of a network in which nothing is tuned."""
    return Kernels({}, AutoSpace(AutoOptions()), target)


def first_unsupported_operator(
    module: Any, target: str, locations: Mapping[str, SourceLocation]
) -> str | None:
    """Compile each operator alone, and describe the first one that fails, or None."""
    # The compiler's own message names no operator.
    tried = set()
    for binding in bindings_of(module["main"]):
        call = binding.value
        name = operator_name(call).removeprefix("relax.")
        if not name:
            continue
        key = _key(call)
        if key in tried:
            continue
        tried.add(key)
        problem = _compile_error(call, target)
        if problem is not None:
            known = locations.get(str(binding.var.name))
            unknown = f"an operator {name} that gives {binding.var.ty}"
            return f"{known.sentence if known else unknown} cannot be compiled: {problem}"
    return None


def _key(call: Any) -> str:
    """A key of an operator call; calls with equal keys compile to the same program."""
    types = [str(getattr(argument, "ty", argument)) for argument in call.args]
    return f"{call.op.name} {types} {call.attrs}"


def _compile_error(call: Any, target: str) -> str | None:
    """The compiler's error for a call of an operator alone, or None."""
    inputs: dict[Any, Any] = {}

    def alone(argument: Any) -> Any:
        if isinstance(argument, relax.Var):
            return inputs.setdefault(argument, relax.Var(f"x{len(inputs)}", argument.ty))
        if isinstance(argument, relax.Tuple):
            return relax.Tuple([alone(field) for field in argument.fields])
        return argument

    try:
        arguments = [alone(argument) for argument in call.args]
        builder = relax.BlockBuilder()
        with builder.function("main", list(inputs.values())):
            with builder.dataflow():
                output = builder.emit(relax.Call(call.op, arguments, call.attrs, call.ty_args))
                result = builder.emit_output(output)
            builder.emit_func_output(result)
        compile_network(prepare_module(builder.get(), "NCHW"), [], empty_kernels(target), target)
    # TVM raises errors of many classes at operators that it cannot compile.
    except Exception as error:  # noqa: BLE001 - the error is the answer
        return first_line(error)
    return None

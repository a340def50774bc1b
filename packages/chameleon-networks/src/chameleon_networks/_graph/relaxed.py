"""Helps passes to read and change graphs of Relax, TVM's graph language.

TVM's Relax imports torch if it is installed, which takes seconds. This module prevents that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from chameleon_core.plugin_api import FLOAT32, ConfigError
from chameleon_system.api import block_import
from chameleon_tvm.api import te, tirx
from chameleon_tvm.api import tvm as _tvm
from numpy.typing import NDArray

from tvm_ffi.serialization import from_json_graph_str  # isort: skip
from tvm_ffi.structural import structural_map  # isort: skip

with block_import("torch"):
    from tvm import relax as _relax

relax, tvm = _relax, _tvm
"""TVM, and its graph language, for modules that import them from here."""

_LARGE = 1024
"""Bytes of a constant above which it is kept beside a module's text."""

_CONSTANT = "constant:"
"""Beginning of a name that no importer gives to a variable."""


def rewritten(module: Any, mutator: Any) -> Any:
    """Apply a mutator to each Relax function of a module, then remove values that nothing reads.

    Args:
        module: An ``IRModule`` of Relax functions in normal form.
        mutator: A ``PyExprMutator`` of the module.
    """
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            mutator.builder_.update_func(variable, mutator.visit_expr(function))
    return relax.transform.DeadCodeElimination()(mutator.builder_.get())


def emitted(builder: Any, value: Any, variable: Any, name: str = "") -> Any:
    """Bind a value to a new variable of the same kind as an old variable.

    The new variable is internal to a dataflow block or an output of it, like the old one.

    Args:
        builder: A ``BlockBuilder`` that is inside a block.
        value: The value to bind.
        variable: The old variable.
        name: The name of the new variable. If empty, TVM chooses a name.
    """
    inner = isinstance(variable, relax.DataflowVar)
    return (builder.emit if inner else builder.emit_output)(value, name)


def bindings_of(function: Any) -> list[Any]:
    """The bindings of a function, in order."""
    return [binding for block in function.body.blocks for binding in block.bindings]


def users_of(function: Any) -> dict[Any, list[Any]]:
    """The bindings of a Relax function that read each variable, by the variable.

    An entry None in a variable's list means that the variable is the function's result.
    """
    users: dict[Any, list[Any]] = defaultdict(list)
    for binding in bindings_of(function):
        for variable in relax.analysis.free_vars(binding.value):
            users[variable].append(binding)
    for variable in relax.analysis.free_vars(function.body.body):
        users[variable].append(None)
    return users


def operator_name(value: Any) -> str:
    """The name of the operator that an expression calls. Empty for other expressions."""
    called = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
    return str(value.op.name) if called else ""


def called(call: Any, arguments: Sequence[Any], **attributes: Any) -> Any:
    """A copy of a call with other arguments, and perhaps with other values of some attributes.

    Args:
        call: The call of an operator.
        arguments: The arguments of the copy.
        attributes: The attributes that change.
    """
    attrs = call.attrs
    if attributes:
        kind = type(attrs).__tvm_ffi_type_info__
        known = {field.name: getattr(attrs, field.name) for field in kind.fields}
        attrs = tvm.ir.make_node(kind.type_key, **{**known, **attributes})
    return relax.Call(call.op, arguments, attrs, call.ty_args)


def each_number(
    builder: Any, function: Callable[[Any], Any], tensor: Any, hint: str, **options: Any
) -> Any:
    """Make a call that applies a function to each number of a tensor.

    Args:
        builder: A ``BlockBuilder`` that is inside a block.
        function: The function, which takes and returns one number as an expression of TIR.
        tensor: The tensor.
        hint: The name of the function in the module, and of its result.
        options: Further options of ``call_te``.
    """

    def whole(source: te.Tensor) -> te.Tensor:
        name = hint.partition("_")[0]
        return te.compute(source.shape, lambda *at: function(source(*at)), name=name)

    return builder.call_te(whole, tensor, primfunc_name_hint=hint, **options)


def known_extents(kind: Any) -> tuple[int, ...] | None:
    """The extents of a tensor; None for other values, or if an extent is not constant.

    Graph passes call this function very often. For speed, the function reads the list of all
    extents: indexing a Relax shape takes four times as long.

    Args:
        kind: The Relax type of an expression, or a buffer.
    """
    shape = getattr(kind, "shape", None)
    if shape is None:
        return None
    extents = getattr(shape, "values", shape)
    known = [int(extent.value) for extent in extents if isinstance(extent, tirx.IntImm)]
    return tuple(known) if len(known) == len(extents) else None


def extents_of(kind: Any) -> tuple[int, ...]:
    """The extents of a tensor, from its type in Relax; all of them must be constant.

    Raises:
        ConfigError: An extent is not constant.
    """
    known = known_extents(kind)
    if known is None:
        raise ConfigError(
            f"the network has a tensor of unknown shape: {kind}",
            hint="Fix every input's shape; dynamic shapes are not supported.",
        )
    return known


def without_constants(module: Any) -> tuple[str, list[NDArray[Any]]]:
    """Convert a module to text in which variables replace large constants.

    The result has the text, and the constants in order.

    TVM itself writes the bytes of constants into the text as letters, which takes far longer.
    """
    arrays: list[NDArray[Any]] = []
    variables: dict[Any, Any] = {}

    def variable(constant: Any) -> Any:
        if constant not in variables:
            plain = str(constant.value.dtype) == FLOAT32  # NumPy reads these without a copy
            value = np.from_dlpack(constant.value) if plain else constant.value.numpy()
            if value.nbytes < _LARGE or value.dtype.kind not in "fiub":
                return constant
            variables[constant] = relax.Var(f"{_CONSTANT}{len(arrays)}", constant.ty)
            arrays.append(value)
        return variables[constant]

    functions = {
        name: structural_map(function, (tvm.ir.expr.GenericConst, variable))
        for name, function in module.functions.items()
    }
    return str(tvm.ir.save_json(tvm.IRModule(functions, module.attrs))), arrays


def with_constants(text: str, arrays: Sequence[NDArray[Any]]) -> Any:
    """The inverse of ``without_constants``."""
    # Without a dtype, TVM makes int32 of int64, and float32 of float64.
    constants = [relax.const(array, str(array.dtype)) for array in arrays]

    def constant(variable: Any) -> Any:
        name = str(variable.name)
        kept = name.startswith(_CONSTANT)
        return constants[int(name.removeprefix(_CONSTANT))] if kept else variable

    # The same version of TVM wrote the text, so that ``tvm.ir.load_json`` would upgrade nothing.
    module = from_json_graph_str(text)
    functions = {
        name: structural_map(function, (relax.Var, constant))
        for name, function in module.functions.items()
    }
    return tvm.IRModule(functions, module.attrs)

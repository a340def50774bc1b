"""Arithmetic on data, as calls that TVM does not simplify.

TVM's simplifier takes floats for real numbers, and 32- and 64-bit integers for indices that never
overflow. It would replace ``(x + c) - c`` by ``x``. The calls become arithmetic again when TVM
generates code: in IEEE 754 without contraction, or in two's complement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache, partial
from typing import Any

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Expr
from chameleon_tvm._late_tvm import structural_map, tirx, tvm
from chameleon_tvm._types import FLOAT32, INT32, UNROUNDED

OPAQUE = "tirx.chameleon_"
"""Beginning of the operators' names in TVM."""

_WIDE = {"int32": "int64", "int64": "int128", "uint32": "uint64", "uint64": "uint128"}
"""The dtypes for which TVM tells LLVM that no sum overflows, and those that hold their sums and
products. LLVM computes what is converted back in the narrower dtype, and wraps it."""


def opaque(name: str, *operands: Expr) -> Expr:
    """An operation on data that TVM does not simplify.

    Args:
        name: A name of ``OPERATIONS``.
        operands: Expressions of one dtype.

    Returns:
        An expression of bool for comparisons, else of the operands' dtype. It is rounded to that
        dtype.
    """
    register_operators()
    first = operands[0]
    kind, compares = str(first.ty).partition("x")[0], name in _COMPARISONS
    if kind in UNROUNDED:
        result = opaque(name, *(emit.cast(FLOAT32, each) for each in operands))
        return result if compares else rounded_to(kind, result)
    dtype = emit.vector_dtype("bool" if compares else kind, first)
    return tirx.call_intrin(dtype, OPAQUE + name, *operands)


def rounded_to(dtype: str, value: Expr) -> Expr:
    """Convert float32 to a dtype of ``UNROUNDED``, with rounding.

    Args:
        dtype: The dtype.
        value: A scalar or vector of float32.
    """
    register_operators()
    rounded = tirx.call_intrin(str(value.ty), f"{OPAQUE}round", value)
    return tirx.Cast(emit.vector_dtype(dtype, value), rounded)


def is_opaque(value: Expr, name: str) -> bool:
    """Whether an expression is an operation that ``opaque`` made.

    Args:
        value: The expression.
        name: The operation's name.
    """
    return isinstance(value, tvm.ir.Call) and str(getattr(value.op, "name", "")) == OPAQUE + name


# -- the operations as TVM's own nodes, which LLVM computes ----------------------------------------

_FLOORED = """
  %quotient = sdiv {type} %a, %b
  %remainder = srem {type} %a, %b
  %signs = xor {type} %remainder, %b
  %differ = icmp slt {type} %signs, zeroinitializer
  %inexact = icmp ne {type} %remainder, zeroinitializer
  %below = and {bool} %differ, %inexact
"""
_FUNCTIONS = {
    "floor_divide": f"""({{type}} %a, {{type}} %b) alwaysinline {{{{{_FLOORED}
  %one = zext {{bool}} %below to {{type}}
  %result = sub {{type}} %quotient, %one""",
    "floor_modulo": f"""({{type}} %a, {{type}} %b) alwaysinline {{{{{_FLOORED}
  %added = select {{bool}} %below, {{type}} %b, {{type}} zeroinitializer
  %result = add {{type}} %remainder, %added""",
    "round": """({type} %a) alwaysinline {{
  %bits = bitcast {type} %a to {word}
  %high = lshr {word} %bits, {n16}
  %odd = and {word} %high, {n1}
  %half = add {word} %odd, {n32767}
  %sum = add {word} %bits, %half
  %kept = and {word} %sum, {n4294901760}
  %is_nan = fcmp uno {type} %a, %a
  %rounded = select {bool} %is_nan, {word} {n2143289344}, {word} %kept
  %result = bitcast {word} %rounded to {type}""",
}
"""LLVM IR of operations that read an operand more than once, or have a dtype that TVM lacks."""


_WORDS = (1, 16, 0x7FFF, 0x7FC00000, 0xFFFF0000)
"""The constants of ``round``: half of the last place less one, NaN, and the bits that are kept."""


def _call(name: str, *operands: Expr) -> Expr:
    """A call of one of ``_FUNCTIONS``."""
    dtype = str(operands[0].ty)
    return tirx.call_pure_extern(dtype, f"chameleon_{name}_{dtype}", *operands)


def _definition(symbol: str) -> str:
    """The LLVM IR of the function with a name that ``_call`` made."""
    name, _, dtype = symbol.removeprefix("chameleon_").rpartition("_")
    kind, _, lanes = dtype.partition("x")
    number = {"float32": "float"}.get(kind) or f"i{kind.removeprefix('int')}"
    types = {"type": number, "bool": "i1", "word": "i32"}
    numbers = {f"n{value}": f"{value}" for value in _WORDS}
    if lanes:
        types = {key: f"<{lanes} x {value}>" for key, value in types.items()}
        numbers = {key: f"splat (i32 {value})" for key, value in numbers.items()}
    body = _FUNCTIONS[name].format(**types, **numbers)
    return f"define {types['type']} @{symbol}{body}\n  ret {types['type']} %result\n}}\n"


def _node(name: str, a: Expr, b: Expr) -> Expr:
    """A node of TVM, which is imported when it is needed."""
    node: Expr = getattr(tirx, name)(a, b)
    return node


def _wrapping(node: str, a: Expr, b: Expr) -> Expr:
    """A sum, difference or product of integers, modulo the size of their dtype."""
    dtype = str(a.ty)
    wide = _WIDE.get(dtype.partition("x")[0])
    if wide is None:
        return _node(node, a, b)
    return tirx.Cast(dtype, _node(node, emit.cast(wide, a), emit.cast(wide, b)))


def _may_be_product(value: Expr, arrays: Collection[Any]) -> bool:
    """Whether LLVM may find a product in a value, also where it chooses among equal products.

    Args:
        value: The value.
        arrays: The arrays in which products are stored; LLVM may use them without a load.
    """
    name = str(getattr(getattr(value, "op", None), "name", "")).removeprefix(OPAQUE)
    parts: list[Expr] = []
    if isinstance(value, tirx.Select):
        parts = [value.true_value, value.false_value]
    elif isinstance(value, tirx.Let):
        parts = [value.body]
    elif isinstance(value, tirx.Broadcast | tirx.Cast):
        parts = [value.value]
    elif name in {"maximum", "minimum"} or name.endswith("if_then_else"):
        parts = list(value.args)
    elif isinstance(value, tvm.ir.TensorLoad):
        return _is_in(value.source, arrays)
    if parts:
        return any(_may_be_product(part, arrays) for part in parts)
    # LLVM multiplies by the reciprocal of a constant power of two.
    is_product = name == "multiply" or (name == "divide" and _is_constant(value.args[1]))
    return is_product or isinstance(value, tirx.Var)


def _arrays_of_products(body: Any) -> list[Any]:
    """The arrays of a function in which it stores products."""
    stores: list[Any] = []

    def kept(store: Any) -> Any:
        stores.append(store)
        return store

    structural_map(body, (tirx.BufferStore, kept))
    arrays: list[Any] = []
    for _ in stores:  # a product may be copied from one array to another
        left = [store for store in stores if not _is_in(store.buffer, arrays)]
        found = [store.buffer for store in left if _may_be_product(store.value, arrays)]
        if not found:
            break
        arrays += found
    return arrays


def _is_in(array: Any, arrays: Collection[Any]) -> bool:
    return any(array.same_as(other) for other in arrays)


def _is_constant(value: Expr) -> bool:
    number = value.value if isinstance(value, tirx.Broadcast) else value
    return isinstance(number, tirx.FloatImm)


def _uncontracted(value: Expr, arrays: Collection[Any]) -> Expr:
    """An operand of a sum, which LLVM would merge with the sum if it is a product."""
    if not emit.is_float(value) or not _may_be_product(value, arrays):
        return value
    dtype = str(value.ty)
    if emit.lanes_of(value) > 1:
        return tirx.call_llvm_pure_intrin(dtype, "llvm.arithmetic.fence", value)
    # LLVM does not vectorize loops with fences: it merges the product with a hidden zero instead.
    zero = tirx.call_llvm_pure_intrin(dtype, "llvm.arithmetic.fence", tirx.FloatImm(dtype, -0.0))
    return tirx.Add(value, zero)


def _sum(node: str) -> Callable[[Expr, Expr], Expr]:
    def lowered(a: Expr, b: Expr) -> Expr:
        return _node(node, a, b) if emit.is_float(a) else _wrapping(node, a, b)

    return lowered


def _multiply(a: Expr, b: Expr) -> Expr:
    return tirx.Mul(a, b) if emit.is_float(a) else _wrapping("Mul", a, b)


def _positive(value: Expr) -> int | None:
    """The value of a positive integer, or of a vector of it; None for other expressions."""
    number = value.value if isinstance(value, tirx.Broadcast) else value
    return int(number) if isinstance(number, tirx.IntImm) and int(number) > 0 else None


def _power_of_two(value: Expr) -> int | None:
    """The exponent of a power of two, or of a vector of it; None for other expressions."""
    number = value.value if isinstance(value, tirx.Broadcast) else value
    power = int(number) if isinstance(number, tirx.IntImm) else 0
    return power.bit_length() - 1 if power > 0 and not power & (power - 1) else None


def _floor_divide(a: Expr, b: Expr) -> Expr:
    exponent = _power_of_two(b)
    if exponent is not None:
        return a >> emit.integer_like(exponent, a, str(a.ty).partition("x")[0])
    return tirx.Div(a, b) if str(a.ty).startswith("uint") else _call("floor_divide", a, b)


def _floor_modulo(a: Expr, b: Expr) -> Expr:
    exponent = _power_of_two(b)
    if exponent is not None:
        return a & emit.integer_like((1 << exponent) - 1, a, str(a.ty).partition("x")[0])
    return tirx.Mod(a, b) if str(a.ty).startswith("uint") else _call("floor_modulo", a, b)


def _compared(node: str) -> Callable[[Expr, Expr], Expr]:
    def lowered(a: Expr, b: Expr) -> Expr:
        if str(a.ty).startswith("bool"):  # TVM generates no comparison of booleans
            a, b = emit.cast(INT32, a), emit.cast(INT32, b)
        return _node(node, a, b)

    return lowered


def _not_equal(a: Expr, b: Expr) -> Expr:
    """TVM's own inequality is false for NaN."""
    return tirx.Not(_compared("EQ")(a, b)) if emit.is_float(a) else _compared("NE")(a, b)


_COMPARISONS = {
    "equal": _compared("EQ"),
    "not_equal": _not_equal,
    "less": _compared("LT"),
    "less_equal": _compared("LE"),
}
_SUMS = {"add": _sum("Add"), "subtract": _sum("Sub")}
OPERATIONS: dict[str, Callable[..., Expr]] = {
    **_SUMS,
    "multiply": _multiply,
    "product": _multiply,
    "divide": partial(_node, "Div"),
    "modulo": partial(_node, "Mod"),
    "floor_divide": _floor_divide,
    "floor_modulo": _floor_modulo,
    "maximum": partial(_node, "Max"),
    "minimum": partial(_node, "Min"),
    "round": partial(_call, "round"),
    "tanh": lambda x: tirx.call_llvm_pure_intrin(str(x.ty), "llvm.tanh", x),
    **_COMPARISONS,
}
"""Functions that make TVM's nodes of an operation's operands, by name.

``divide`` and ``modulo`` of integers round towards zero. ``round`` rounds float32 to 16 bits. An
extremum is the second operand if either is NaN. TVM's own ``tanh`` loses a small number. Each
operand occurs once in the result: TVM binds a variable for a value by simplifying it.
"""


NODES = {
    "Add": "add",
    "Sub": "subtract",
    "Mul": "product",
    "Div": "divide",
    "Mod": "modulo",
    "FloorDiv": "floor_divide",
    "FloorMod": "floor_modulo",
    "Max": "maximum",
    "Min": "minimum",
    "EQ": "equal",
    "NE": "not_equal",
    "LT": "less",
    "LE": "less_equal",
}
"""The operations that TVM's nodes are, by the name of their class."""


@cache
def register_operators() -> None:
    """Add the operators to TVM, which must know them before it reads a function that uses them."""
    attributes = {"TCallEffectKind": int(tirx.CallEffectKind.Pure.value), "TVectorizable": True}
    for name in OPERATIONS:
        tvm.ir._ffi_api.RegisterOp(OPAQUE + name, "")  # noqa: SLF001 - there is no public function
        for key, value in {**attributes, "TScriptPrinterName": f"chameleon_{name}"}.items():
            tvm.ir.register_op_attr(OPAQUE + name, key, value)


def lower_opaque(function: Any) -> Any:
    """Replace the opaque operations of a function by TVM's own nodes, after all its other passes.

    Args:
        function: A ``PrimFunc`` for LLVM. Other functions stay as they are.
    """
    symbols: set[str] = set()

    def lowered(call: Any, names: Collection[str]) -> Any:
        name = str(getattr(call.op, "name", ""))
        if not name.startswith(OPAQUE) or name.removeprefix(OPAQUE) not in names:
            return call
        operands = _equal_types(call)
        if names is _SUMS:
            operands = [_uncontracted(each, arrays) for each in operands]
        result = OPERATIONS[name.removeprefix(OPAQUE)](*operands)
        if isinstance(result, tvm.ir.Call) and "pure_extern" in str(result.op):
            symbols.add(str(result.args[0].value))
        return result

    body = function.body
    arrays = _arrays_of_products(body)
    # Sums come first, because they treat products differently.
    for names in (_SUMS, OPERATIONS):
        body = structural_map(body, (tvm.ir.Call, partial(lowered, names=names)))
    for symbol in sorted(symbols):
        text = tvm.ir.StringImm(_definition(symbol))
        body = tirx.AttrStmt(0, "pragma_import_llvm", text, body)
    return function if body.same_as(function.body) else function.with_body(body)


def plain_arithmetic(function: Any) -> Any:
    """Replace opaque operations by nodes that TVM knows, but simplifies wrongly.

    Args:
        function: A ``PrimFunc``.
    """
    nodes = {name: getattr(tirx, node) for node, name in NODES.items()}
    nodes |= {"multiply": tirx.Mul, "round": lambda number: number, "tanh": tirx.tanh}

    def plain(call: Any) -> Any:
        name = str(getattr(call.op, "name", ""))
        known = name.startswith(OPAQUE)
        return nodes[name.removeprefix(OPAQUE)](*call.args) if known else call

    body = structural_map(function.body, (tvm.ir.Call, plain))
    return function if body.same_as(function.body) else function.with_body(body)


def _equal_types(call: Any) -> list[Expr]:
    """The operands of an opaque operation, in one dtype; TVM narrows those that are indices."""
    kinds = {str(each.ty).partition("x")[0] for each in (call, *call.args)} - {"bool"}
    return [emit.cast("int64", each) for each in call.args] if len(kinds) > 1 else [*call.args]


@cache
def blocks_pipeline() -> str:
    """The name of TVM's default pipeline with ``lower_opaque``, which the first call registers."""
    name = "chameleon-blocks"
    passes, host, device = tirx.get_tir_pipeline("default")

    def lowered() -> tuple[Any, Any, Any]:
        return passes, with_lowered_operators(host), _with_plain_operators(device)

    tirx.register_tir_pipeline(name, lowered)
    return name


def _with_plain_operators(device: Callable[[], Any]) -> Callable[[], Any]:
    """The passes that finish a pipeline's device functions, then ``plain_arithmetic``."""

    def plain(function: Any, *_: Any) -> Any:
        result = plain_arithmetic(function)
        if result.same_as(function):
            return function
        # CUDA's code generator lacks some of TVM's nodes. This pass simplifies no data.
        return tirx.transform.LowerIntrin()(tvm.IRModule({"main": result}))["main"]

    def passes() -> Any:
        finish = tirx.transform.prim_func_pass(plain, opt_level=0, name="PlainArithmetic")
        return tvm.transform.Sequential([device(), finish])

    return passes


def with_lowered_operators(host: Callable[[], Any]) -> Callable[[], Any]:
    """The passes that finish a pipeline's host functions, with ``lower_opaque`` after them."""

    def passes() -> Any:
        lower = tirx.transform.prim_func_pass(
            lambda function, *_: lower_opaque(function), opt_level=0, name="LowerOpaque"
        )
        return tvm.transform.Sequential([host(), lower])

    return passes

"""Short functions that write loop nests in TensorIR directly.

TVM's schedule primitives have no register tiles as straight-line code, no overlapping tiles at
borders, and no loop bounds that skip taps in the padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._types import FLOAT32, StorageType

Expr = Any
Stmt = Any
Buffer = Any

_MAX_SERIAL_STORES = 2048
"""The most stores of a loop that takes less time than starting threads. A store with its operations
takes about a cycle, and starting threads takes some thousand cycles."""

_IN_ALL_CACHES, _DATA = 3, 1
"""Arguments of ``llvm.prefetch``."""


def buffer(name: str, shape: Sequence[int], *, dtype: str = "float32") -> Buffer:
    """Declare a buffer."""
    return tirx.decl_buffer(list(shape), dtype, name)


def loop(name: str, extent: Expr, body: Callable[[Expr], Stmt], *, start: Expr = 0) -> Stmt:
    """Write a serial loop over ``[start, start + extent)``; only its body if the extent is 1."""
    if isinstance(extent, int) and extent == 1:
        return body(start)
    variable, kind = tirx.Var(name, "int32"), tirx.ForKind.SERIAL
    return tirx.For(variable, _constant(start), _constant(extent), kind, body(variable))


def loops(extents: Mapping[str, Expr], body: Callable[..., Stmt]) -> Stmt:
    """Nested loops from 0, outermost first; ``body`` takes their variables."""

    def nest(names: Sequence[str], chosen: tuple[Expr, ...]) -> Stmt:
        if not names:
            return body(*chosen)
        return loop(names[0], extents[names[0]], lambda at: nest(names[1:], (*chosen, at)))

    return nest([*extents], ())


def pieces(name: str, extent: int, size: int, body: Callable[[Expr, int], Stmt]) -> Stmt:
    """Write a loop over pieces of an axis, and the shorter last piece after it.

    Args:
        body: Takes the number of a piece and its size.
    """
    whole, rest = divmod(extent, size)
    statements = [loop(name, whole, lambda at: body(at, size))] if whole else []
    return sequence([*statements, body(whole, rest)] if rest else statements)


def parallel(name: str, extent: Expr, body: Callable[[Expr], Stmt]) -> Stmt:
    """Write a parallel loop; a serial one if it takes less time than starting threads does."""
    variable = tirx.Var(name, "int32")
    iteration = body(variable)
    short = False
    if isinstance(extent, int):
        most = _MAX_SERIAL_STORES // max(extent, 1)
        short = extent * _stores(iteration, most) <= _MAX_SERIAL_STORES
    kind = tirx.ForKind.SERIAL if short else tirx.ForKind.PARALLEL
    return tirx.For(variable, _constant(0), _constant(extent), kind, iteration)


def _stores(statement: Stmt, most: int) -> float:
    """An upper bound of a statement's stores; infinity above ``most`` or if unknown."""
    if isinstance(statement, tirx.SeqStmt):
        left: float = most
        for part in statement.seq:
            left -= _stores(part, int(left))
            if left < 0:
                return math.inf
        return most - left
    if isinstance(statement, tirx.IfThenElse):
        return max(_stores(case, most) for case in (statement.then_case, statement.else_case))
    if isinstance(statement, tirx.For) and isinstance(statement.extent, tirx.IntImm):
        extent = int(statement.extent)
        return extent and extent * _stores(statement.body, most // extent)
    known = {tirx.BufferStore: 1.0, tirx.AllocBuffer: 0.0, type(None): 0.0}
    return known.get(type(statement), math.inf)


def sequence(statements: Sequence[Stmt]) -> Stmt:
    """One statement that runs the given statements in order; without any, it does nothing."""
    if not statements:
        return tirx.Evaluate(_constant(0))
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


def load(source: Buffer, index: Sequence[Expr], lanes: int = 1) -> Expr:
    """An element, or a vector of ``lanes`` consecutive elements."""
    return tirx.BufferLoad(source, _indices(index, lanes))


def splat(value: Expr, lanes: int) -> Expr:
    """A vector of ``lanes`` equal elements."""
    return value if lanes == 1 else tirx.Broadcast(value, lanes)


def store(target: Buffer, index: Sequence[Expr], value: Expr, lanes: int = 1) -> Stmt:
    """Write an element, or ``lanes`` consecutive elements."""
    return tirx.BufferStore(target, value, _indices(index, lanes))


def prefetch(source: Buffer, index: Sequence[Expr], *, write: bool = False) -> Stmt:
    """Read the cache line of an element before it is loaded or stored (``write``)."""
    address = tirx.address_of(tirx.BufferLoad(source, list(index)))
    arguments = int(write), _IN_ALL_CACHES, _DATA
    return tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", address, *arguments))


def constant(value: float, lanes: int = 1) -> Expr:
    """A float32 constant, or a vector of it."""
    return splat(tirx.FloatImm("float32", value), lanes)


def zero(lanes: int = 1, dtype: str = "float32") -> Expr:
    """Zero, or a vector of zeros."""
    return constant(0.0, lanes) if dtype == "float32" else splat(tirx.const(0, dtype), lanes)


def lanes_of(value: Expr) -> int:
    """Number of lanes of an expression; 1 for a scalar."""
    # Elements of te's tensors have no type before they become expressions.
    _, _, lanes = str(getattr(value, "ty", "")).partition("x")
    return int(lanes) if lanes else 1


def is_float(value: Expr) -> bool:
    """Whether an expression is a floating-point number or a vector of them."""
    return "float" in str(value.ty)


def vector_dtype(dtype: str, like: Expr) -> str:
    """The vector dtype with as many lanes as an expression, such as ``int32x8``."""
    lanes = lanes_of(like)
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def broadcast_like(scalar: Expr, like: Expr) -> Expr:
    """Broadcast a scalar to as many lanes as an expression has."""
    return splat(scalar, lanes_of(like))


def constant_like(value: float, like: Expr) -> Expr:
    """A float32 constant with as many lanes as an expression."""
    return constant(value, lanes_of(like))


def integer_like(value: int, like: Expr, dtype: str = "int32") -> Expr:
    """An integer constant with as many lanes as an expression."""
    return broadcast_like(tirx.IntImm(dtype, value), like)


def cast(dtype: str, value: Expr) -> Expr:
    """Convert a scalar or vector to another dtype."""
    wanted = vector_dtype(dtype, value)
    return value if str(value.ty) == wanted else tirx.Cast(wanted, value)


def widening(kind: StorageType, value: Expr) -> Expr:
    """Make the expression that converts stored numbers to float32, like ``StorageType.real``."""
    if kind.name == FLOAT32:
        return value
    if kind.storage_dtype == kind.name:
        # The CPU has an instruction for this (F16C, NEON), which also converts denormals.
        return tirx.Cast(vector_dtype(FLOAT32, value), value)
    bits = tirx.Cast(vector_dtype("uint32", value), value) << _word(16, value)
    return tirx.reinterpret(vector_dtype(FLOAT32, value), bits)


def rounding(kind: StorageType, value: Expr) -> Expr:
    """Make the expression that rounds float32 to a stored dtype, like ``StorageType.stored``."""
    if kind.name == FLOAT32:
        return value
    if kind.storage_dtype == kind.name:
        return tirx.Cast(vector_dtype(kind.name, value), value)
    bits = tirx.reinterpret(vector_dtype("uint32", value), value)
    odd = (bits >> _word(16, value)) & _word(1, value)
    nearest = (bits + _word(0x7FFF, value) + odd) >> _word(16, value)
    # TVM would simplify a comparison of the number with itself.
    is_nan = (bits & _word(0x7FFFFFFF, value)) > _word(0x7F800000, value)
    word = tirx.Select(is_nan, _word(0x7FC0, value), nearest)
    return tirx.Cast(vector_dtype(kind.storage_dtype, value), word)


def _word(value: int, like: Expr) -> Expr:
    return integer_like(value, like, "uint32")


def registers(
    count: int, lanes: int, *, name: str = "sum", dtype: str = "float32"
) -> tuple[Buffer, ...]:
    """Declare vector registers, to be allocated with ``allocate``.

    Each is a buffer of its own, because TVM puts only small buffers on the stack.
    """
    return tuple(buffer(f"{name}{index}", (lanes,), dtype=dtype) for index in range(count))


def read(register: Buffer) -> Expr:
    """The vector that a register holds."""
    return load(register, [0], int(register.shape[0]))


def assign(register: Buffer, value: Expr) -> Stmt:
    """Statement that puts a vector into a register."""
    return store(register, [0], value, int(register.shape[0]))


def transposed(vectors: Sequence[Expr]) -> tuple[Sequence[Stmt], Sequence[Expr]]:
    """Transpose a square of vectors, by its quarters, then their quarters.

    Returns:
        The statements that define variables, and the transposed vectors.
    """
    width, statements, lines = len(vectors), list[Stmt](), list(vectors)
    distance = width // 2
    while distance:
        pairs = [(lines[n & ~distance], lines[n | distance]) for n in range(width)]
        lanes_of_pairs = [
            [
                lane ^ distance * (lane & distance != line & distance)
                | width * bool(lane & distance)
                for lane in range(width)
            ]
            for line in range(width)
        ]
        values = [tirx.Shuffle([*each], at) for each, at in zip(pairs, lanes_of_pairs, strict=True)]
        lines = [tirx.Var("line", value.ty) for value in values]
        statements += map(tirx.Bind, lines, values)
        distance //= 2
    return statements, lines


def allocate(targets: Buffer | Sequence[Buffer], body: Stmt) -> Stmt:
    """A statement with one or more buffers allocated around it."""
    buffers = targets if isinstance(targets, Sequence) else (targets,)
    return tirx.SeqStmt([*(tirx.AllocBuffer(target) for target in buffers), body])


def hoist(values: Sequence[Expr], body: Callable[..., Stmt]) -> Stmt:
    """Write a statement that computes indices once, in memory that LLVM turns into registers.

    TVM would put the value of a variable into each index that uses it.
    """
    memory = buffer("kept", (len(values),), dtype="int32")
    stores = [store(memory, [number], value) for number, value in enumerate(values)]
    loads = (load(memory, [number]) for number in range(len(values)))
    return allocate(memory, sequence([*stores, body(*loads)]))


def branch(cases: Sequence[tuple[Expr, Stmt]], otherwise: Stmt) -> Stmt:
    """Write a statement that runs the first case whose condition is true, else ``otherwise``."""
    chosen = otherwise
    for condition, statement in reversed(cases):
        chosen = tirx.IfThenElse(condition, statement, chosen)
    return chosen


def when(condition: Expr, statement: Stmt) -> Stmt:
    """Write a statement that runs only if a condition is true."""
    return tirx.IfThenElse(condition, statement, None)


def split(index: Expr, extents: Sequence[Expr]) -> list[Expr]:
    """Split an index into one index per axis, outermost first."""
    digits: list[Expr] = []
    remaining = index
    whole = all(isinstance(extent, int) for extent in extents)
    for position, extent in reversed(list(enumerate(extents))):
        if is_number(extent, 1):
            digits.append(0)
        elif all(is_number(outer, 1) for outer in extents[:position]):
            digits.append(remaining)
        else:
            digits.append((tirx.floormod if whole else tirx.truncmod)(remaining, extent))
            remaining = quotient(remaining, extent, known=whole)
    return digits[::-1]


def is_number(value: Expr, number: int) -> bool:
    """Whether an extent is an integer, and this one."""
    return isinstance(value, int) and value == number


def divided(extent: Expr, size: int) -> Expr:
    """The number of tiles of a size that cover an extent."""
    if isinstance(extent, int):
        return math.ceil(extent / size)
    return quotient(extent + (size - 1), size, known=False)


def quotient(number: Expr, divisor: Expr, *, known: bool) -> Expr:
    """The quotient of a number that is not negative, rounded down.

    Args:
        number: The number.
        divisor: The divisor, above 0.
        known: Whether TVM can find out that the number is not negative. Otherwise its code for
            floordiv is slow, and fails for a quotient of quotients.
    """
    return tirx.floordiv(number, divisor) if known else tirx.truncdiv(number, divisor)


def join(digits: Sequence[Expr], extents: Sequence[int]) -> Expr:
    """The index of mixed-radix digits, outermost first: the inverse of ``split``."""
    index: Expr = 0
    for digit, extent in zip(digits, extents, strict=True):
        # A leading zero would add an expression that TVM has to simplify.
        index = digit if isinstance(index, int) and index == 0 else index * extent + digit
    return index


def tile_start(tile: Expr, size: int, extent: int) -> Expr:
    """The start of a tile on its axis; the last tile starts earlier to end with the axis.

    Tiles then overlap, so loops need no conditions and outputs need no padding.
    """
    start = tile * size
    return start if extent % size == 0 else tirx.min(start, extent - size)


def function(parameters: Sequence[Buffer], body: Stmt) -> tirx.PrimFunc:
    """A function of the given buffers, which must not overlap."""
    result = tirx.PrimFunc(list(parameters), body)
    return result.with_attr("tirx.noalias", True)


def with_shapes(original: tirx.PrimFunc, shapes: Mapping[str, Sequence[int]]) -> tirx.PrimFunc:
    """The same function with parameters of other shapes that have as many elements."""
    parameters, inside = [], []
    for old in original.params:
        shape = list(shapes.get(str(old.name), old.shape))
        if shape == [int(extent) for extent in old.shape]:
            parameters.append(old)
            continue
        parameters.append(buffer(str(old.name), shape, dtype=str(old.dtype)))
        inside.append(tirx.DeclBuffer(old, data=parameters[-1].data))
    return function(parameters, tirx.SeqStmt([*inside, original.body])) if inside else original


def _constant(value: Expr) -> Expr:
    return tirx.IntImm("int32", value) if isinstance(value, int) else value


def _indices(start: Sequence[Expr], lanes: int) -> list[Expr]:
    indices = [_constant(index) for index in start]
    if lanes > 1:
        indices[-1] = tirx.Ramp(indices[-1], tirx.IntImm("int32", 1), lanes)
    return indices

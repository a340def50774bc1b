"""How instructions get into a function of TensorIR: as LLVM's intrinsics, or through LLVM IR."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chameleon_tvm.instructions.base import Expr, Instruction
from chameleon_tvm.quick_tvm import tirx, tvm


def intrinsic(dtype: str, name: str, *arguments: Expr) -> Expr:
    """A call of one of LLVM's intrinsics that has no effect beside its result.

    Args:
        dtype: of the result.
        name: as in LLVM IR.
        arguments: of the types that the intrinsic declares.
    """
    return tirx.call_llvm_pure_intrin(dtype, name, *arguments)


def fenced(sums: Expr, lanes: int) -> Expr:
    """Sums of integers that LLVM does not put in another order; no instruction.

    Of an unrolled loop it would add up the products of several iterations first, and then add those
    to the sums, for which there are no registers.

    Args:
        sums: of int32.
        lanes: of the vector.
    """
    # LLVM has such a fence for floating-point numbers alone.
    floats = f"float32x{lanes}"
    kept = intrinsic(floats, "llvm.arithmetic.fence", tirx.reinterpret(floats, sums))
    return tirx.reinterpret(f"int32x{lanes}", kept)


def function(dtype: str, name: str, *arguments: Expr) -> Expr:
    """A call of a function of an instruction's ``prelude`` that has no effect beside its result.

    Args:
        dtype: of the result.
        name: of the function.
        arguments: of the types that the prelude declares; bfloat16 as integers.
    """
    return tirx.call_pure_extern(dtype, name, *arguments)


def importing(body: Any, instructions: Iterable[Instruction]) -> Any:
    """The body of a function with what the emission of its instructions calls into.

    TVM's code generator inlines these functions, so that no two kernels of a library clash.

    Args:
        body: a statement.
        instructions: that it uses.
    """
    for prelude in sorted({one.prelude for one in instructions if one.prelude}):
        body = tirx.AttrStmt(0, "pragma_import_llvm", tvm.ir.StringImm(prelude), body)
    return body

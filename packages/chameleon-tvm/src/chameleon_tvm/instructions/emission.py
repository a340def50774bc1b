"""How instructions get into a function of TensorIR: as LLVM's intrinsics, or through LLVM IR."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chameleon_core.errors import TargetError
from chameleon_system.permissions import refusal

from chameleon_tvm.instructions.base import Expr, Instruction
from chameleon_tvm.quick_tvm import tirx, tvm

PERMISSIONS = "chameleon_permissions"
"""Attribute of functions: what a process has to ask the operating system for."""


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

    In an unrolled loop it would add up products of several iterations before it adds them to the
    sums, for which there are no registers.

    Args:
        sums: of int32.
        lanes: of the vector.
    """
    # LLVM has such a fence for floating-point numbers alone.
    floats = f"float32x{lanes}"
    barrier = intrinsic(floats, "llvm.arithmetic.fence", tirx.reinterpret(floats, sums))
    return tirx.reinterpret(f"int32x{lanes}", barrier)


def function(dtype: str, name: str, *arguments: Expr) -> Expr:
    """A call of a function of an instruction's ``prelude`` that has no effect beside its result.

    Args:
        dtype: of the result.
        name: of the function.
        arguments: of the types that the prelude declares; bfloat16 as integers.
    """
    return tirx.call_pure_extern(dtype, name, *arguments)


def using(function: tirx.PrimFunc, instructions: Iterable[Instruction]) -> tirx.PrimFunc:
    """A function with what its instructions need: what they call into, and their permissions.

    Args:
        function: whole.
        instructions: that it uses.
    """
    used = list(instructions)
    body = importing(function.body, used)
    changed = tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)
    permissions = sorted({instruction.permission for instruction in used if instruction.permission})
    return changed.with_attr(PERMISSIONS, permissions) if permissions else changed


def permissions_of(function: Any) -> frozenset[str]:
    """The permission that a process has to ask the operating system for before it calls a function.

    Args:
        function: of a module; only a ``tirx.PrimFunc`` needs any.
    """
    return frozenset(map(str, (function.attrs or {}).get(PERMISSIONS, ())))


def require_permissions(function: tirx.PrimFunc) -> None:
    """Ask for what a function needs.

    Raises:
        TargetError: the system refuses it.
    """
    for permission in sorted(permissions_of(function)):
        refused = refusal(permission)
        if refused:
            raise TargetError(
                f"the system refuses {permission.upper()} to this process: {refused}",
                hint="Allow the system call arch_prctl, which containers may forbid, or use a "
                "target without it, such as -mattr=-amx-tile.",
            )


def importing(body: Any, instructions: Iterable[Instruction]) -> Any:
    """The body of a function with what the emission of its instructions calls into.

    TVM's code generator inlines these functions, so that no two kernels of a library clash.

    Args:
        body: a statement.
        instructions: that it uses.
    """
    for prelude in sorted({item.prelude for item in instructions if item.prelude}):
        body = tirx.AttrStmt(0, "pragma_import_llvm", tvm.ir.StringImm(prelude), body)
    return body

"""Puts instructions into a TensorIR function, as LLVM's intrinsics or as functions in LLVM IR."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chameleon_core.plugin_api import TargetError
from chameleon_system.api import request_permission

from chameleon_tvm._instructions.base import Expr, Instruction
from chameleon_tvm._late_tvm import tirx, tvm

PERMISSIONS = "chameleon_permissions"
"""Attribute of functions with the permissions that a process must request from the operating
system."""


def intrinsic(dtype: str, name: str, *arguments: Expr) -> Expr:
    """Call an intrinsic of LLVM, as an expression of TensorIR.

    The intrinsic must have no effect besides its result.

    Args:
        name: Name of the intrinsic in LLVM IR.
        arguments: Expressions of the types that the intrinsic declares.
    """
    return tirx.call_llvm_pure_intrin(dtype, name, *arguments)


def fence(sums: Expr, lanes: int) -> Expr:
    """Wrap integer sums in a fence, so that LLVM does not reorder their additions.

    In an unrolled loop, LLVM would need registers for the products of several iterations.
    """
    # LLVM has such a fence for floating-point numbers alone.
    floats = f"float32x{lanes}"
    barrier = intrinsic(floats, "llvm.arithmetic.fence", tirx.reinterpret(floats, sums))
    return tirx.reinterpret(f"int32x{lanes}", barrier)


def call_function(dtype: str, name: str, *arguments: Expr) -> Expr:
    """Call a function without side effects of an instruction's ``prelude``."""
    return tirx.call_pure_extern(dtype, name, *arguments)


def with_instructions(
    function: tirx.PrimFunc, instructions: Iterable[Instruction]
) -> tirx.PrimFunc:
    """Add the LLVM IR and the permissions of instructions to a function that uses them."""
    used = list(instructions)
    body = with_preludes(function.body, used)
    result = tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)
    permissions = sorted({instruction.permission for instruction in used if instruction.permission})
    return result.with_attr(PERMISSIONS, permissions) if permissions else result


def permissions_of(function: Any) -> frozenset[str]:
    """The permissions that a process must request from the operating system to call a function.

    Args:
        function: A function of a module. Only a ``tirx.PrimFunc`` needs permissions.
    """
    return frozenset(map(str, (function.attrs or {}).get(PERMISSIONS, ())))


def require_permissions(function: tirx.PrimFunc) -> None:
    """Request the permissions that a function's instructions need, such as AMX.

    Raises:
        TargetError: The operating system refuses a permission.
    """
    for permission in sorted(permissions_of(function)):
        reason = request_permission(permission)
        if reason:
            raise TargetError(
                f"the system refuses {permission.upper()} to this process: {reason}",
                hint="Allow the system call arch_prctl, which containers may forbid, or use a "
                "target without it, such as -mattr=-amx-tile.",
            )


def with_preludes(body: Any, instructions: Iterable[Instruction]) -> Any:
    """Add the LLVM IR functions of instructions to a body; TVM's code generator inlines them."""
    for prelude in sorted({item.prelude for item in instructions if item.prelude}):
        body = tirx.AttrStmt(0, "pragma_import_llvm", tvm.ir.StringImm(prelude), body)
    return body

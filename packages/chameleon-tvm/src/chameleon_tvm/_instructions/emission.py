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
        dtype: Dtype of the result.
        name: Name of the intrinsic in LLVM IR.
        arguments: Expressions of the types that the intrinsic declares.
    """
    return tirx.call_llvm_pure_intrin(dtype, name, *arguments)


def fenced(sums: Expr, lanes: int) -> Expr:
    """Wrap integer sums in a fence, so that LLVM does not reorder their additions.

    In an unrolled loop, LLVM would otherwise add up the products of several iterations before it
    adds them to the sums. There are not enough registers for these products. The fence itself emits
    no instruction.

    Args:
        sums: A vector of int32.
        lanes: Number of elements of the vector.
    """
    # LLVM has such a fence for floating-point numbers alone.
    floats = f"float32x{lanes}"
    barrier = intrinsic(floats, "llvm.arithmetic.fence", tirx.reinterpret(floats, sums))
    return tirx.reinterpret(f"int32x{lanes}", barrier)


def function(dtype: str, name: str, *arguments: Expr) -> Expr:
    """Call a function in an instruction's ``prelude``, as an expression of TensorIR.

    The function must have no effect besides its result.

    Args:
        dtype: Dtype of the result.
        name: Name of the function in the prelude.
        arguments: Expressions of the types that the prelude declares. Bfloat16 numbers are passed
            as integers.
    """
    return tirx.call_pure_extern(dtype, name, *arguments)


def using(function: tirx.PrimFunc, instructions: Iterable[Instruction]) -> tirx.PrimFunc:
    """Complete a function that uses instructions: add their LLVM IR and their permissions.

    Args:
        function: The complete function.
        instructions: The instructions that the function uses.
    """
    used = list(instructions)
    body = importing(function.body, used)
    changed = tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)
    permissions = sorted({instruction.permission for instruction in used if instruction.permission})
    return changed.with_attr(PERMISSIONS, permissions) if permissions else changed


def permissions_of(function: Any) -> frozenset[str]:
    """The permissions that a process must request from the operating system to call a function.

    Args:
        function: A function of a module. Only a ``tirx.PrimFunc`` needs permissions.
    """
    return frozenset(map(str, (function.attrs or {}).get(PERMISSIONS, ())))


def require_permissions(function: tirx.PrimFunc) -> None:
    """Request the permissions that a function's instructions need, such as AMX.

    Args:
        function: The function.

    Raises:
        TargetError: The operating system refuses a permission.
    """
    for permission in sorted(permissions_of(function)):
        refused = request_permission(permission)
        if refused:
            raise TargetError(
                f"the system refuses {permission.upper()} to this process: {refused}",
                hint="Allow the system call arch_prctl, which containers may forbid, or use a "
                "target without it, such as -mattr=-amx-tile.",
            )


def importing(body: Any, instructions: Iterable[Instruction]) -> Any:
    """Add to a function's body the LLVM IR functions that its instructions call.

    TVM's code generator inlines these functions, so the same names in two kernels of a library do
    not clash.

    Args:
        body: The function's body, a TensorIR statement.
        instructions: The instructions that the body uses.
    """
    for prelude in sorted({item.prelude for item in instructions if item.prelude}):
        body = tirx.AttrStmt(0, "pragma_import_llvm", tvm.ir.StringImm(prelude), body)
    return body

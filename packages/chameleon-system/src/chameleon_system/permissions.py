"""Requests that the operating system wants before a process uses a part of the processor."""

from __future__ import annotations

import ctypes
import os
import platform
import sys

AMX = "amx"
"""The tiles of Intel's Advanced Matrix Extensions: 8 KiB of registers that Linux saves only for
processes that asked for them (Linux's Documentation/arch/x86/xstate.rst)."""

AMX_CALL = 158, 0x1023, 18
"""``arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`` on x86-64. Linux grants it for all
threads of the process, and for all processes that it forks."""


def refusal(permission: str) -> str:
    """Ask for a permission; one that is granted already is granted again.

    Args:
        permission: ``AMX``.

    Returns:
        Why the system refuses it; empty if the process has it now.
    """
    if permission != AMX:
        return f"no system knows the permission {permission!r}"
    if not (sys.platform == "linux" and platform.machine() == "x86_64"):
        return "only Linux on x86-64 grants AMX"
    number = system_call(*AMX_CALL)
    return os.strerror(number) if number else ""


def system_call(*words: int) -> int:
    """Call the system.

    Args:
        words: number of the call, and its arguments.

    Returns:
        0, or the number of the error.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    return 0 if libc.syscall(*map(ctypes.c_long, words)) == 0 else ctypes.get_errno()

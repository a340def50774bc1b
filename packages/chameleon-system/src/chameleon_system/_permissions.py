"""Permissions that a process must request before it may use some parts of the processor."""

from __future__ import annotations

import ctypes
import os
import platform
import sys

AMX = "amx"
"""The tile registers of Intel's Advanced Matrix Extensions. Linux saves their 8 KiB only for
processes that request this (Linux's Documentation/arch/x86/xstate.rst)."""

AMX_CALL = 158, 0x1023, 18
"""The system call ``arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`` on x86-64. Linux grants
the permission to all threads of the process, and to all processes that it forks."""


def request_permission(permission: str) -> str:
    """Request a permission; return the reason if the system refuses it, else an empty string.

    If the process already has the permission, the request succeeds again.
    """
    if permission != AMX:
        return f"no system knows the permission {permission!r}"
    if not (sys.platform == "linux" and platform.machine() == "x86_64"):
        return "only Linux on x86-64 grants AMX"
    number = system_call(*AMX_CALL)
    return os.strerror(number) if number else ""


def system_call(*words: int) -> int:
    """Make a system call of Linux, and return 0 or the number of the error (``errno``)."""
    libc = ctypes.CDLL(None, use_errno=True)
    return 0 if libc.syscall(*map(ctypes.c_long, words)) == 0 else ctypes.get_errno()

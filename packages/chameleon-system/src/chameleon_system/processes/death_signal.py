"""Processes that end with their parent, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends.

    On Linux this is ``prctl(PR_SET_PDEATHSIG)``: the kernel sends the signal when the *thread*
    that started this process ends. Processes that this one starts do not inherit it.

    Args:
        parent: process id of the parent; when it is already gone, this process exits.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The parent may have died before the call above; then nobody would ever kill us.
    if os.getppid() != parent:
        os._exit(1)


def ignore_terminal() -> None:
    """Leave Ctrl-C to the parent; a child ends when it is told to."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

"""Lets a process end with its parent, however the parent ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends.

    On Linux this uses ``prctl(PR_SET_PDEATHSIG)``: the kernel sends the signal when the *thread*
    that started this process ends. Children of this process do not inherit the setting.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # If the parent ended before the call above, the kernel would never send the signal.
    if os.getppid() != parent:
        os._exit(1)


def ignore_terminal() -> None:
    """Ignore Ctrl-C in this child process, because its parent handles Ctrl-C and ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
